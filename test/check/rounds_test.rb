# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/check/check"

# What is released in the pause after the rounds is no growth, in whatever rounds it came; the rest is.
class CheckRoundsTest < MemscopeTest
  Rounds = Memscope::Check.const_get(:Rounds)
  Options = Memscope::Check.const_get(:Options)
  InUse = Memscope::Check.const_get(:InUse)

  # Counts objects of one class, and blocks of malloc.
  Memory = Struct.new(:objects, :blocks) do
    def read(malloc: true)
      InUse.new({ "Order" => step(objects) }, 0, (step(blocks) if malloc), 0, 0)
    end

    def step(counts) = counts.size > 1 ? counts.shift : counts.first
  end

  # By the growth in each round and what the pause releases: what is left of the last five rounds; nil: nothing is left.
  { [[100] * 10, 0] => [100] * 5, [[100] * 10, 1000] => nil, [[200] * 10, 1000] => [100] * 5,
    [([10] * 5) + ([100] * 5), 550] => nil, [[10_000] + ([100] * 9), 1000] => nil,
    [[10_000] + ([200] * 9), 1000] => [100] * 5 }.each_with_index do |((rounds, released), left), index|
    define_method("test_what_is_left_after_the_pause_#{index}") do
      ran = run_rounds(counts(rounds, released))

      assert_equal [left], [ran.grown["Order"]] # minitest deprecates assert_equal with nil
      assert_equal left ? ["Order"] : [], ran.names
      assert_equal left ? [] : ["Order", Rounds::ALL], ran.to_h[:expired]
      assert_equal released.positive?, ran.released? || false
      assert(ran.names.all? { |name| ran.body(name)[:per_iteration].positive? })
    end
  end

  # Other objects are allocated meanwhile.
  def test_classes_that_are_released_are_not_called_all_objects
    ran = run_rounds(counts([100] * 10, 1000), others: 1000)

    assert_empty ran.names
  end

  def test_blocks_that_cannot_be_counted_any_more_are_not_released
    counted = counts([100] * 10, 0)
    ran = run_rounds([0], blocks: [*counted.first(13), nil])

    assert_equal [Rounds::MALLOC], ran.names
    assert_empty ran.to_h[:expired]
  end

  private

  # Two counts before the first round, one after each, one after the pause.
  def counts(rounds, released)
    sums = rounds.each_with_object([0]) { |number, all| all << (all.last + number) }
    [0, 0, *sums, sums.last - released]
  end

  def run_rounds(objects, blocks: [0], others: 0)
    memory = Memory.new(objects.dup, blocks)
    grow_others(memory, others) if others.positive?
    options = Options.new({ runs: 5, iterations: 10, warmup: 0 }, rounds: 10, pause: 0)
    Rounds.new(options, ->(_times) {}, memory).run
  end

  def grow_others(memory, others)
    memory.define_singleton_method(:read) do |malloc: true|
      super(malloc: malloc).tap { |count| count.objects["Other"] = objects.size > 1 ? 0 : others }
    end
  end
end
