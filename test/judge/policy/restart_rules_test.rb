# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/decided"

# Which worker is restarted, and when. Tests of rules learned from harm that other tools did are named after that harm.
class PolicyRestartRulesTest < MemscopeTest
  include Decided

  # puma_worker_killer#11: the memory never recedes, and the kills go on.
  def test_kills_that_do_not_lower_the_group_went_on
    useless = ->(ago) { [Groups.outcome(:restart, 0, ago, expected: 300, returned: 149)] }

    assert_none(/restarting does not help: the last one returned 149\.0 MiB of 300\.0 MiB expected, .*needed again/,
                decide(1700, workers: FAT, outcomes: useless[5.9 * HOUR]))
    assert_none(/does not help/, decide(1950, workers: FAT, outcomes: useless[HOUR]))
    assert_restart(2, decide(1700, workers: FAT, outcomes: useless[6.1 * HOUR]))
    half = [Groups.outcome(:restart, 0, HOUR, expected: 300, returned: 150)]

    assert_restart(2, decide(1700, workers: FAT, outcomes: half))
  end

  # puma_worker_killer#14: by RSS, the newest looks smallest, and the same ones are killed again and again.
  def test_the_same_worker_was_killed_in_circles
    last = [Groups.outcome(:restart, 2, 3 * HOUR, returned: 300, expected: 300)]

    assert_none(/it was the last to be restarted/, decide(1700, workers: FAT, outcomes: last))
    assert_restart(1, decide(1700, workers: { **FAT, 1 => { private: 300 } }, outcomes: last))
    assert_restart(2, decide(1700, workers: { 2 => { leak: 30, private: 500 } }, outcomes: last))
    assert_restart(2, decide(1700, workers: FAT, outcomes: [Groups.outcome(:restart, 2, 6.1 * HOUR, returned: 300)]))
  end

  def test_ranked_by_what_leaks_not_by_size
    decision = decide(1700, workers: { 1 => { private: 300 }, 3 => { leak: 19, private: 220 } })

    assert_restart(3, decision)
    assert_equal 190 * MEBIBYTE, decision.expected_bytes # 19 MiB an hour for 10 hours
  end

  # puma_worker_killer#46: TERM to the pid of a worker that is gone, which may be another process's by now.
  def test_the_signal_went_to_a_pid_that_was_gone
    old = Groups.take(1700, workers: { 2 => { private: 900, pid: 4711 } }).first(19)
    decision = Memscope::Policy.new.decide([*old, Groups.take([1700], workers: { 1 => { private: 300 } }).first])

    assert_restart(1, decision)
    refute_includes decision.to_json, "4711"
  end

  # puma_worker_killer#53: two reapers took two of two workers.
  def test_two_were_taken_at_once
    assert_none(/worker 0 \(pid 100\) has not booted yet/, decide(1700, workers: { **FAT, 0 => { booted: false } }))
    assert_none(/only 3 of 4 workers serve/, decide(1700, workers: { **FAT, 0 => nil }))
    [1700, 1950].each do |working_set|
      pending = [Groups.outcome(:restart, 0, 2000)]

      assert_none(/restart of worker 0 \(pid 90\), 2,000 s ago, has not ended yet/,
                  decide(working_set, workers: FAT, outcomes: pending))
    end
  end

  # puma_worker_killer#104: one restart per tick is too slow far above the limit, and too fast otherwise.
  def test_the_rate_did_not_follow_the_headroom
    last = ->(ago) { [Groups.outcome(:restart, 0, ago, returned: 100)] }

    assert_none(/last restart was 600 s ago, and \d+ s must pass/, decide(1700, workers: FAT, outcomes: last[600]))
    assert_restart(2, decide(1700, workers: FAT, outcomes: last[1100]))
    assert_restart(2, decide(1950, workers: FAT, outcomes: last[600]))
    assert_none(/last restart was 200 s ago/, decide(1950, workers: FAT, outcomes: last[200]))
  end

  # gitlab-org/gitlab#32646: a limit alone kills too early on busy hosts and too late on idle ones.
  def test_workers_that_need_their_memory_were_killed_for_it
    needed = (0..3).to_h { |index| [index, { private: 350 }] }

    assert_none(/a new worker would need as much memory \(4 workers\)/, decide(1700, workers: needed))
  end

  # react_on_rails#2764: restarts went on although the successors died.
  def test_restarts_went_on_although_successors_died
    one = Groups.outcome(:restart, 0, 4 * HOUR, returned: 100, failed_boots: 1)
    other = Groups.outcome(:restart, 1, 2 * HOUR, returned: 100)

    assert_restart(2, decide(1700, workers: FAT, outcomes: [one, other]))
    both = [one, { **other, failed_boots: 1, booted_seconds: Groups::NOW - 1700 }]

    [1700, 1950].each do |working_set|
      assert_none(/2 successors died before they had booted: nothing is restarted until one has run for 1800 s/,
                  decide(working_set, workers: FAT, outcomes: both))
    end
    again = { **other, failed_boots: 5, booted_seconds: Groups::NOW - 1900 }

    assert_restart(2, decide(1700, workers: FAT, outcomes: [one, again]))
  end

  # The same: capacity fell while a successor booted.
  def test_capacity_dropped_during_restarts
    assert_none(/only 4 of 5 workers serve/, decide(1700, workers: { **FAT, 0 => nil }, count: 5))
    assert_restart(0, decide(1950, workers: { 0 => { private: 900 } }, count: 1)) # its master keeps the socket
  end

  # puma_worker_killer#11, #18: a kill was a stop, since nothing started the process again.
  def test_a_kill_was_a_stop
    assert_none(/nothing is known to start it again \(the setting policy_supervised is false\)/,
                decide(1700, workers: FAT, supervised: false))
    assert_equal :purge, decide(1700, workers: { 1 => { purge: 60 } }, supervised: false).action
  end

  # puma#2794: with fork_worker, all workers are forked from worker 0.
  def test_worker_zero_was_culled_under_fork_worker
    exempt = { 0 => { private: 900, exempt: "with fork_worker, the others are forked from it" } }

    assert_none(/exempt: with fork_worker/, decide(1700, workers: exempt))
    assert_none(/exempt/, decide(1950, workers: exempt, count: 1))
    assert_restart(1, decide(1700, workers: { **exempt, 1 => { private: 500 } }))
  end

  def test_a_worker_that_has_just_started_was_killed
    started = ->(ago) { { 2 => { private: 500, started_seconds: Groups::NOW - ago } } }

    assert_none(/has run for less than 1917 s/, decide(1700, workers: started[1400]))
    assert_restart(2, decide(1700, workers: started[2200]))
  end

  # A limit that is too low for warm workers is reached before any of them has run for half an hour.
  def test_if_the_limit_is_about_to_be_reached_one_worker_of_ten_minutes_is_restarted
    all = ->(ago) { (0..3).to_h { |index| [index, { private: 500, started_seconds: Groups::NOW - ago }] } }
    rising = [*[1700] * 17, 1910, 1930, 1950] # 20 MiB in 30 s
    early = { policy: Memscope::Policy.new(hard_min_uptime_seconds: 60) }

    assert_none(/has run for less than 639 s/, decide(rising, workers: all[599]))
    assert_restart(0, decide(rising, workers: all[721])) # 600 s and up to a fifth more
    assert_restart(0, decide(rising, workers: all[599], **early))
    assert_none(/has run for less than 1917 s/, decide(1950, workers: all[1400]))
    assert_none(/has run for less than 1917 s/, decide([*[1700] * 17, 1946, 1948, 1950], workers: all[1400]))
    before = ->(ago) { [Groups.outcome(:restart, 3, ago, returned: 100)] }

    assert_none(/has run for less than 1917 s/, decide(rising, workers: all[1400], outcomes: before[1799]))
    assert_restart(0, decide(rising, workers: all[1400], outcomes: before[1800]))
  end

  # What is allowed above a hard limit is never stricter than below.
  def test_shorter_times_than_those_of_the_hard_limit
    policy = Memscope::Policy.new(min_uptime_seconds: 60, interval_seconds: 120, jitter: 0)
    young = { 2 => { private: 900, started_seconds: Groups::NOW - 80 } }
    last = [Groups.outcome(:restart, 0, 121, returned: 100)]

    [1700, [*[1700] * 17, 1910, 1930, 1950]].each do |readings|
      assert_restart(2, decide(readings, workers: young, outcomes: last, policy: policy))
    end
  end

  def test_what_was_only_observed_counts_for_the_interval_and_is_not_waited_for
    seen = ->(ago) { [Groups.outcome(:restart, 0, ago, executed: false)] }

    assert_none(/last restart was 600 s ago/, decide(1700, workers: FAT, outcomes: seen[600]))
    assert_restart(2, decide(1700, workers: FAT, outcomes: seen[1100]))
  end
end
