# frozen_string_literal: true

require "minitest/mock"
require_relative "../test_helper"
require_relative "../support/decided"

# What a policy is, and what it decides on any readings. How a policy does over months is tested in
# test/judge/policy/battery_test.rb.
class PolicyTest < MemscopeTest
  include Decided

  # puma_worker_killer#29, #23: all hosts restart their workers at the same time.
  def test_all_hosts_restarted_at_once
    policy = Memscope::Policy.new
    times = (1..200).map { |host| policy.time(:interval_seconds, "web-#{host}") }

    assert_operator times.uniq.size, :>, 190
    assert_operator times.min, :>=, 900
    assert_operator times.max, :<=, 1080
    assert_in_delta 990, times.sum / times.size, 10
    assert_equal 900, Memscope::Policy.new(jitter: 0).time(:interval_seconds, "web-1")
    refute_equal(*[0, 1].map { |worker| policy.time(:min_uptime_seconds, "web-1", worker) })
  end

  def test_the_jitter_is_the_same_in_another_process
    assert_equal Memscope::Policy.new.time(:interval_seconds, "web-1", 3),
                 child_json("puts Memscope::Policy.new.time(:interval_seconds, 'web-1', 3)")
  end

  def test_it_is_pure
    readings = Groups.take(1700, workers: FAT).freeze
    no_clock = ->(*) { raise "a policy read a clock" }
    decisions = Process.stub(:clock_gettime, no_clock) do
      Time.stub(:now, no_clock) { Array.new(2) { Memscope::Policy.new.decide(readings) } }
    end

    assert_equal 1, decisions.uniq.size
    assert_predicate decisions.first, :frozen?
  end

  # Groups in which anything may be unknown, at the edges of the limits; each with what is decided.
  def any_decisions
    random = Random.new(18)
    Array.new(800) { any_group(random) }.map { |groups| [groups.last, Memscope::Policy.new(jitter: 0).decide(groups)] }
  end

  def test_any_readings
    decisions = any_decisions.map(&:last)

    assert_equal Memscope::Policy::ACTIONS.sort, decisions.map(&:action).uniq.sort
    decisions.each do |decision|
      assert_match(/\A[A-Z].*[^.]\.\z/, decision.reason)
      assert_equal decision.none?, decision.worker.nil?
      assert_operator decision.expected_bytes, :>, 0 unless decision.none?
    end
  end

  def test_who_is_restarted_in_any_readings
    any_decisions.select { |_, decision| decision.action == :restart }.each do |group, decision|
      worker = decision.worker
      least = group.working_set_bytes > 0.95 * group.limit_bytes ? 600 : 1800

      assert_equal [nil, true, true], [worker.exempt, worker.booted?, worker.private_bytes.positive?]
      assert_operator Groups::NOW - worker.started_seconds, :>=, least
    end
  end

  def any_group(random)
    choose = ->(*values) { values[random.rand(values.size)] }
    workers = (0..3).to_h { |index| [index, random.rand < 0.02 ? nil : any_worker(random, choose)] }
    outcomes = Array.new(choose[0, 0, 1, 3]) do
      Groups.outcome(choose[:purge, :restart], random.rand(4), random.rand(30_000),
                     pid: 100 + random.rand(8), returned: choose[nil, 0, 100], failed_boots: choose[0, 0, 0, 1],
                     executed: random.rand < 0.9)
    end
    working_set = choose[1500, 1599.999999, 1600, 1600.000001, 1700, 1700, 1950, 2000, 2100, nil]
    Groups.take([working_set] * 6, every: 75, workers: workers, outcomes: outcomes.sort_by { |one| one[:seconds] },
                                   host: choose["web-1", nil], supervised: choose[true, true, false],
                                   limit_bytes: choose[*[Groups.bytes(2000)] * 4, 2_097_152_001, 1, 0, nil])
  end

  def any_worker(random, choose)
    { index: choose[nil, random.rand(4)], started_seconds: Groups::NOW - random.rand(20_000),
      booted: random.rand < 0.97, private: choose[nil, 0, 200, 800], leak: choose[nil, nil, -1, 0, 90],
      purge: choose[nil, nil, 0, 40], exempt: choose[nil, nil, nil, "the others are forked from it"] }
  end
  private :any_group, :any_worker

  { { soft: 1.2 } => "soft: given 1.2, allowed: a number from 0.1 to 1",
    { soft: Float::NAN } => "soft: given NaN, allowed: a number from 0.1 to 1",
    { hard: 0.7 } => "hard: given 0.7, allowed: 0.8 or more, which soft is",
    { readings: 2.5 } => "readings: given 2.5, allowed: an Integer from 1 to 1000",
    { settle_seconds: "60" } => 'settle_seconds: given "60", allowed: a number from 0 to 604800',
    { failed_boots: nil } => "failed_boots: given nil, allowed: an Integer from 1 to 1000",
    { sfot: 0.8 } => "given :sfot, allowed: soft, hard, readings" }.each_with_index do |(rules, message), number|
    define_method("test_a_wrong_rule_#{number}") do
      error = assert_raises(ArgumentError) { Memscope::Policy.new(**rules) }
      assert_match(/\AMemscope::Policy\.new: #{Regexp.escape(message)}/, error.message)
    end
  end

  def test_wrong_readings
    [nil, [], [1], Groups.take([1]).first].each do |given|
      error = assert_raises(ArgumentError) { Memscope::Policy.new.decide(given) }
      assert_match(/\AMemscope::Policy#decide: readings: given .*, allowed: an Array of one or more/, error.message)
    end
  end
end
