# frozen_string_literal: true

require_relative "../../test_helper"

# Objects that compaction cannot move, each alone on its page: GC.compact leaves as many pages as the upper bound says.
class PinSurveyTest < MemscopeTest
  parallelize_me!

  KEPT = 200

  # thin: keeps what the block returns, and makes each amid garbage that fills the pages between them.
  # pages: the upper bound, how many pages are surely pinned, and how many hold objects after compaction.
  SCRIPT = <<~RUBY.freeze
    require "json"

    def thin(filler)
      garbage = []
      GC.disable
      kept = Array.new(#{KEPT}) do |index|
        garbage << Array.new(1_600, &filler)
        yield index
      end
      garbage.clear
      GC.enable
      kept
    end

    def pages
      heap = Memscope.ruby_heap(collect: true)
      most = heap.pages - (heap.compactable_min_bytes / heap.page_bytes)
      return [most, heap.pinned_pages_min] if Memscope::RubyHeap.compaction_refusal

      2.times { GC.compact }
      after = Memscope.ruby_heap(collect: true)
      [most, heap.pinned_pages_min, after.pages - after.hidden_empty_pages]
    end

    FILLER = proc { Object.new }
  RUBY

  # A few objects are made between the readings.
  def assert_bound(script, pinned:)
    most, pinned_pages, left = child_json("#{SCRIPT}\n#{script}\nputs JSON.generate(pages)")

    assert_operator pinned_pages, :>=, KEPT * 3 / 4 if pinned
    assert_operator left, :<=, most + 4 if left
  end

  def test_environments_of_procs
    assert_bound <<~RUBY, pinned: RUBY_VERSION < "3.3"
      def closure(value) = proc { value }
      PROCS = thin(FILLER) { |index| closure(index) }
    RUBY
  end

  def test_variables_of_objects_that_are_no_plain_objects
    assert_bound <<~RUBY, pinned: RUBY_VERSION < "3.3"
      HOLDERS = Array.new(#{KEPT}) { String.new }
      thin(FILLER) { |index| HOLDERS[index].instance_variable_set(:@value, Object.new) && nil }
    RUBY
  end

  def test_data_of_blocks_written_in_c
    assert_bound <<~RUBY, pinned: true
      PROCS = thin(proc { Kernel.method(:puts) }) { Kernel.method(:puts) }.map(&:to_proc)
    RUBY
  end

  def test_lists_of_finalizers
    assert_bound <<~RUBY, pinned: false
      FINALIZER = proc {}
      OBJECTS = Array.new(#{KEPT}) { Object.new }
      thin(proc { [] }) { |index| ObjectSpace.define_finalizer(OBJECTS[index], FINALIZER) && nil }
    RUBY
  end
end
