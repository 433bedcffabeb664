# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/assertions"

class AssertionsTest < MemscopeTest
  include Memscope::Assertions

  Order = Class.new
  KEPT = [] # rubocop:disable Style/MutableConstant -- it is what leaks
  # This file's path from the working directory.
  SHORT = File.expand_path(__FILE__).delete_prefix("#{Dir.pwd}/").freeze
  # Few rounds, since a check counts all of the suite's objects after each.
  OPTIONS = { iterations: 20, runs: 2, warmup: 0 }.freeze

  def test_a_block_that_leaves_nothing_behind_passes
    before = assertions
    check = assert_no_growth(**OPTIONS) { Order.new }

    assert_instance_of Memscope::Check, check
    refute_predicate check, :grows?
    assert_equal 3, assertions - before
  end

  def test_a_leak_fails_with_its_line_and_its_holder
    line = __LINE__ + 1
    error = assert_raises(Minitest::Assertion) { assert_no_growth("checkout", **OPTIONS) { KEPT << Order.new } }

    assert_match(/\Acheckout\n +Leak: memory grows in each of the last 2 rounds of 20\s+iterations/, error.message)
    assert_match(/\+1 AssertionsTest::Order per iteration \(20, 20\)/, error.message)
    assert_match(/allocated at #{SHORT}:#{line}: 40 are left/, error.message)
    assert_match(/held by AssertionsTest::KEPT (?:→|->) Array (?:→|->) AssertionsTest::Order$/, error.message)
    assert_match(/a leak, or a cache that is still filling/, error.message)
    assert_equal "#{__FILE__}:#{line}", error.location
    assert_empty KEPT
  end

  def test_allocations_within_limits_pass
    check = assert_allocates(objects: 2, Order => 0..2) { 2.times { Order.new } }

    assert_instance_of Memscope::Check::Allocations, check
  end

  def test_too_many_allocations_fail
    line = __LINE__ + 1
    error = assert_raises(Minitest::Assertion) { assert_allocates("parse", Order => 0..1) { 2.times { Order.new } } }

    assert_match(/\Aparse\n  AssertionsTest::Order: 2 allocated, allowed: 0\.\.1$/, error.message)
    assert_match(/^ +2  #{SHORT}:#{line}$/, error.message)
    assert_equal "#{__FILE__}:#{line}", error.location
  end

  def test_wrong_options_are_refused
    assert_raises(ArgumentError) { assert_no_growth(iterations: 0) { flunk } }
    assert_raises(ArgumentError) { assert_no_growth }
    assert_raises(ArgumentError) { assert_allocates { flunk } }
    assert_raises(ArgumentError) { assert_allocates(object: 3) { flunk } }
  end
end
