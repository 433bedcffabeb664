# frozen_string_literal: true

require_relative "test_helper"
require "memscope/rspec"

# The protocol of RSpec's matchers. With RSpec itself: rake battery:assertions.
class RSpecTest < MemscopeTest
  include Memscope::RSpec

  KEPT = [] # rubocop:disable Style/MutableConstant -- it is what leaks
  OPTIONS = { iterations: 20, runs: 2, warmup: 0 }.freeze

  def test_a_leak_matches
    matcher = grow_memory(**OPTIONS)

    assert matcher.matches?(-> { KEPT << Object.new })
    assert_match(/\Aexpected the block not to grow memory, but memory grows in.*KEPT/m,
                 matcher.failure_message_when_negated)
  end

  def test_what_leaves_nothing_behind_does_not_match
    matcher = grow_memory(**OPTIONS)

    refute matcher.matches?(-> { Object.new })
    assert_match(/\Aexpected the block to grow memory, but memory does not grow: /, matcher.failure_message)
  end

  def test_it_takes_blocks_only
    assert_predicate grow_memory, :supports_block_expectations?
    refute_predicate grow_memory, :supports_value_expectations?
    assert_equal "grow memory", grow_memory.description
  end
end
