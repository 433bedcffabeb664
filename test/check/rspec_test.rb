# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/rspec"

# The protocol of RSpec's matchers. With RSpec itself: rake battery:assertions.
class RSpecTest < MemscopeTest
  include Memscope::RSpec

  KEPT = [] # rubocop:disable Style/MutableConstant -- it is what leaks
  OPTIONS = { iterations: 20, runs: 2, warmup: 0 }.freeze

  def test_a_leak_matches
    matcher = grow_memory(**OPTIONS)

    assert matcher.matches?(-> { KEPT << Object.new })
    assert_match(/\Aexpected the block not to grow memory:\n +Leak: memory grows in.*KEPT/m,
                 matcher.failure_message_when_negated)
  end

  def test_what_leaves_nothing_behind_does_not_match
    matcher = grow_memory(**OPTIONS)

    refute matcher.matches?(-> { Object.new })
    assert_match(/\Aexpected the block to grow memory:\n +Steady: nothing grows in /, matcher.failure_message)
  end

  def test_allocations_up_to_the_limit_match
    matcher = allocate_at_most(3, Object => 2)

    assert matcher.matches?(-> { 2.times { Object.new } })
    refute matcher.matches?(-> { 3.times { Object.new } })
    assert_match(/\Aexpected the block to allocate at most 3 objects, 2 Object, but it allocates
  Object: 3 allocated, allowed: 0..2$/, matcher.failure_message)
    assert_match(/\Aexpected the block not to allocate at most/, matcher.failure_message_when_negated)
  end

  def test_limits_are_named
    assert_equal "allocate at most 1 object, 1 String", allocate_at_most(1, String => 1).description
  end

  def test_limits_are_integers
    [-1, 0..3, nil].each { |limit| assert_raises(ArgumentError) { allocate_at_most(String => limit) } }
    assert_raises(ArgumentError) { allocate_at_most("3") }
  end

  def test_they_take_blocks_only
    [grow_memory, allocate_at_most(1)].each do |matcher|
      assert_predicate matcher, :supports_block_expectations?
      refute_predicate matcher, :supports_value_expectations?
    end

    assert_equal "grow memory", grow_memory.description
    error = assert_raises(ArgumentError) { grow_memory.matches?(1) }

    assert_match(/grow memory: given 1, allowed: a block/, error.message)
  end
end
