# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/decided"

# When a purge or a restart is decided, and which of them.
class PolicyDecisionRulesTest < MemscopeTest
  include Decided

  def test_nothing_is_done_below_the_soft_limit
    assert_none(/\AThe working set is 1,500\.0 MiB, 75 % of the limit; it is below the soft limit, 80 %\.\z/,
                decide(1500, workers: FAT))
  end

  def test_above_the_soft_limit_the_worker_that_holds_most_for_good_is_restarted
    decision = decide(1700, workers: FAT)

    assert_restart(2, decision)
    assert_equal [102, 300 * MEBIBYTE, 100 * MEBIBYTE],
                 [decision.worker.pid, decision.expected_bytes, decision.over_bytes]
    assert_equal "The working set is 1,700.0 MiB, 85 % of the limit; 100.0 MiB over the soft limit, 80 %: restarting " \
                 "worker 2 (pid 102) returns about 300.0 MiB.", decision.reason
  end

  def test_without_a_limit_nothing_is_over
    assert_none(/no limit is set/, decide(1700, workers: FAT, limit_bytes: nil))
  end

  def test_an_unknown_working_set
    assert_none(/\ANothing to do: the working set is unknown\.\z/, decide(nil, workers: FAT))
    assert_none(/for 1 readings?|unknown|below/, decide(([nil] * 19) + [1700], workers: FAT))
  end

  def test_a_purge_comes_before_a_restart
    both = { 1 => { purge: 30, private: 500 } }
    decision = decide(1700, workers: both)

    assert_equal [:purge, 1], [decision.action, decision.worker.index]
    assert_restart(1, decide(1700, workers: { 1 => { purge: nil, private: 500 } }))
  end

  def test_an_action_must_return_a_quarter_of_what_is_over
    assert_equal :purge, decide(1700, workers: { 1 => { purge: 25 } }).action
    assert_none(/a new worker would need as much memory/, decide(1700, workers: { 1 => { purge: 24.9 } }))
    assert_restart(2, decide(1700, workers: { 2 => { private: 225 } }))
    assert_none(/would return 24\.9 MiB, too little of the excess of 100\.0 MiB/,
                decide(1700, workers: { 2 => { private: 224.9 } }))
  end

  def test_a_purge_counts_with_all_workers_that_may_be_purged
    each = (0..3).to_h { |index| [index, { purge: 7 + index }] }
    decision = decide(1700, workers: each)

    assert_equal [:purge, 3, 10 * MEBIBYTE], [decision.action, decision.worker.index, decision.expected_bytes]
  end

  def test_the_same_worker_is_purged_again_after_an_interval
    purge = { 1 => { purge: 60 } }
    used = ->(ago) { [Groups.outcome(:purge, 1, ago, pid: 101, expected: 60, returned: 60)] }

    assert_equal :none, decide(1700, workers: purge, outcomes: used[700]).action
    assert_equal :purge, decide(1700, workers: purge, outcomes: used[1100]).action
  end

  def test_a_purge_that_did_not_help_gives_way_to_another_workers
    useless = [Groups.outcome(:purge, 1, 2 * HOUR, pid: 101, expected: 60, returned: 29)]
    decision = decide(1700, workers: { 1 => { purge: 60 }, 3 => { purge: 40 } }, outcomes: useless)

    assert_equal [:purge, 3], [decision.action, decision.worker.index]
    assert_restart(2, decide(1700, workers: { 1 => { purge: 60 }, **FAT }, outcomes: useless))
  end

  def test_above_the_hard_limit_only_a_restart_is_left
    decision = decide(1950, workers: { 1 => { purge: 400 }, 2 => { private: 500 } })

    assert_restart(2, decision)
    assert_equal 300 * MEBIBYTE, decision.expected_bytes
  end

  def test_above_the_hard_limit_without_a_restart_a_purge_is_better_than_nothing
    decision = decide(1950, workers: { 1 => { purge: 400 } }, supervised: false)

    assert_equal [:purge, 1], [decision.action, decision.worker.index]
  end

  def test_the_next_waits_until_the_last_is_measured
    pending = [Groups.outcome(:purge, 0, 100, booted_seconds: Groups::NOW - 50)]

    assert_none(/has not been measured yet/, decide(1700, workers: FAT, outcomes: pending))
    lost = [Groups.outcome(:restart, 0, 5000, booted_seconds: Groups::NOW - 4000)] # not measured: the master slept

    assert_restart(2, decide(1700, workers: FAT, outcomes: lost))
  end

  def test_a_successor_that_never_boots_ended_all_for_ever
    lost = ->(ago) { [Groups.outcome(:restart, 0, ago * HOUR)] }
    waits = decide(1700, workers: FAT, outcomes: lost[5.9])

    assert_none(/has not ended yet/, waits)
    assert_equal 100 * MEBIBYTE, waits.over_bytes, "so that it is logged"
    assert_restart(2, decide(1700, workers: FAT, outcomes: lost[6.1]))
  end
end
