# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/process/ruby_heap/garbage"

class RubyHeapGarbageTest < MemscopeTest
  GARBAGE = Memscope::RubyHeap::Garbage

  def test_a_collection_is_a_major_one_and_says_how_long_it_took
    before = GC.stat(:major_gc_count)
    collected = GARBAGE.collect

    assert_operator GC.stat(:major_gc_count), :>, before
    assert_operator collected[:pause_us], :positive?
    assert_kind_of Integer, collected[:returned_bytes]
  end

  # In a child: here, another test's thread may collect meanwhile.
  def test_what_was_allocated_since_a_collection_is_bounded
    skip "this Ruby does not count what a GC marked" unless GARBAGE.const_get(:COUNTED, false)
    few, many, unknown = child_json(<<~RUBY, requires: %w[json memscope/process/ruby_heap/garbage])
      garbage = Memscope::RubyHeap::Garbage
      GC.disable
      GC.start
      few = garbage.unjudged_bytes
      kept = Array.new(1_000) { "x" * 1_000 }
      many = garbage.unjudged_bytes
      GC.enable
      GC.start(full_mark: false)
      puts JSON.generate([few, many - few, garbage.unjudged_bytes])
    RUBY

    assert_operator few, :>=, 0
    assert_operator many, :>=, 1_000_000
    assert_nil unknown
  end
end
