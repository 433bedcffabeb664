# frozen_string_literal: true

require_relative "../../test_helper"
require "minitest/mock"

class BlackBoxApproachTest < MemscopeTest
  Approach = Memscope::Loading.unit(:BlackBox)::Approach

  Group = Struct.new(:limit_bytes, :headroom_bytes, :pressure, :directory, :working_set_bytes, :events)

  # @param lefts [Array<Numeric>] the share of the limit that is left, each second
  # @return [Array<Symbol>] what began and, by its letter, whether the end was near: n, or only close: c
  def looks(approach, lefts, seconds: 10, full: 0.0)
    @now = (@now || 0) + seconds
    lefts.map do |left|
      group = Group.new(1000 << 20, (left * 1000).to_i << 20, { full: { avg10: full } }, "/nonexistent")
      began = Memscope::Cgroup.stub(:read, group) { approach.look(@now += seconds) }
      [began, (:n if approach.near?), (:c if approach.close?)].compact.first
    end
  end

  def test_the_end_is_near_with_little_left
    assert_equal [nil, nil, :headroom, :n, :n, nil], looks(Approach.new, [0.12, 0.119, 0.09, 0.09, 0.08, 0.12])
  end

  def test_the_end_is_near_with_little_time_left
    assert_equal [nil, nil, :time, nil], looks(Approach.new, [0.50, 0.49, 0.41, 0.41])
    assert_equal [nil, nil, nil], looks(Approach.new, [0.9, 0.7, 0.6]), "more than half is left"
  end

  def test_the_end_is_near_when_all_tasks_stall
    assert_equal %i[pressure n], looks(Approach.new, [0.6, 0.6], full: 25.0)
  end

  # A container may live with a twentieth left.
  def test_a_process_close_to_its_limit_is_sampled_often_only_for_a_while
    approach = Approach.new

    assert_equal %i[headroom n n c c], looks(approach, [0.06] * 5, seconds: 120)
    assert_equal %i[c n n], looks(approach, [0.04, 0.02, 0.03])
    assert_equal [nil, :headroom], looks(approach, [0.2, 0.05])
  end

  def test_without_a_limit_nothing_is_near
    approach = Approach.new

    Memscope::Cgroup.stub(:read, Group.new(nil, nil, { full: { avg10: 99 } }, nil)) { assert_nil approach.look(1) }

    refute_predicate approach, :limited?
  end

  def test_evidence_is_taken_a_few_times_a_day
    approach = Approach.new

    refute_predicate approach, :began?
    taken = Array.new(Approach::MOST + 1) { |hour| approach.take_evidence(3600.0 * hour) }

    assert_predicate approach, :began?
    assert_nil taken.pop
    assert_empty taken - %i[census lines]
    refute_nil approach.take_evidence(2.0 * Approach::DAY)
  end
end
