# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/check/check"

# How many objects a block allocates, compared with what it is known to allocate.
class CheckAllocationsTest < MemscopeTest
  Order = Class.new

  # Three Orders, two Arrays.
  def work
    3.times { Order.new }
    Array.new(1) { Array.new(1) }
  end

  def test_what_is_within_its_limits_passes
    limits = { objects: 5, Order => 3, Array => 0..2, "String" => 0, Hash => ..0, Object => 0 }
    check = Memscope::Check.allocations(limits) { work }

    assert_predicate check, :passed?, check
    assert_empty check.exceeded
    assert_instance_of Memscope::Measurement, check.measurement
  end

  def test_what_is_not_within_its_limit_is_named
    check = Memscope::Check.allocations({ objects: 0..4, Order => 4, Array => 2.. }) { work }

    refute_predicate check, :passed?
    assert_equal({ objects: 5, Order => 3 }, check.exceeded)
    assert_match(/^  objects: 5 allocated, allowed: 0\.\.4$/, check.to_s)
    assert_match(/^  CheckAllocationsTest::Order: 3 allocated, allowed: 4$/, check.to_s)
    assert_match(/^ +3  CheckAllocationsTest::Order$/, check.to_s)
    assert_match(/^ +3  #{File.expand_path(__FILE__).delete_prefix("#{Dir.pwd}/")}:12$/, check.to_s)
  end

  # GC.stat's count is taken in a thread that does nothing else.
  def test_the_number_is_that_of_gc_stat
    block = -> { 1_000.times { Object.new } }
    block.call
    counted = Thread.new do
      before = GC.stat(:total_allocated_objects)
      block.call
      GC.stat(:total_allocated_objects) - before
    end.value

    measured = Memscope::Check.allocations({ Object => 1_000 }, &block).measurement

    assert_includes measured.allocated_objects..counted, counted
    assert_predicate Memscope::Check.allocations({ objects: 1_000..counted }, &block), :passed?
  end

  def test_memoized_values_do_not_count
    assert_predicate Memscope::Check.allocations({ objects: 0 }) { @memoized ||= "once" }, :passed?
  end

  # One measurement at a time: the others wait.
  def test_parallel_threads_wait_for_each_other
    threads = Array.new(4) do |number|
      Thread.new { Memscope::Check.allocations({ Order => number }) { number.times { Order.new } }.passed? }
    end

    assert_equal [true] * 4, threads.map(&:value)
  end

  def test_wrong_arguments_are_refused
    wrong = { {} => "limits", { objects: -1 } => ":objects", { String => "many" } => "String", { 4 => 1 } => "limits",
              { objects: (nil..) } => ":objects", { objects: 1..2.5 } => ":objects", { Class.new => 0..3 } => "limits",
              { Module.new.const_set(:Inner, Class.new) => 0..3 } => "limits" }
    wrong.each do |limits, named|
      error = assert_raises(ArgumentError) { Memscope::Check.allocations(limits) { flunk } }

      assert_match(/\AMemscope::Check\.allocations: #{named}: given .*, allowed: /, error.message)
    end

    assert_match(/no block given/, assert_raises(ArgumentError) { Memscope::Check.allocations({ objects: 1 }) }.message)
  end

  def test_an_error_of_the_block_is_raised
    assert_raises(KeyError) { Memscope::Check.allocations({ objects: 1 }) { {}.fetch(:missing) } }
    assert_predicate Memscope::Check.allocations({ objects: 0 }) { nil }, :passed?
  end
end
