# frozen_string_literal: true

require "minitest/mock"
require_relative "../test_helper"
require_relative "../support/groups"

# What a policy decides. Tests of rules learned from harm that other tools did are named after that harm. How a policy
# does over months is tested in test/judge/policy/battery_test.rb.
class PolicyTest < MemscopeTest
  MEBIBYTE = Groups::MEBIBYTE
  # Worker 2 has 300 MiB more than the others.
  FAT = { 2 => { private: 500 } }.freeze
  HOUR = 3600

  def decide(*arguments, policy: Memscope::Policy.new, **options)
    policy.decide(Groups.take(*arguments, **options))
  end

  def assert_restart(index, decision)
    assert_equal [:restart, index], [decision.action, decision.worker&.index], decision.reason
  end

  def assert_none(pattern, decision)
    assert_equal :none, decision.action, decision.reason
    assert_nil decision.worker
    assert_nil decision.expected_bytes
    assert_match pattern, decision.reason
  end

  # --- The trigger

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

  def test_a_load_wave_does_not_last_long_enough
    assert_none(/above the soft limit, 80 %, for 8 readings over 210 s; needed: 5 readings over \d+ s/,
                decide(([1500] * 12) + ([1700] * 8), workers: FAT))
    assert_none(/below the soft limit/, decide(([1700] * 19) + [1590], workers: FAT))
  end

  def test_five_readings_are_needed_however_far_apart
    assert_none(/for 4 readings over 450 s/, decide([1700] * 4, every: 150, workers: FAT))
    assert_restart(2, decide([1700] * 5, every: 150, workers: FAT))
  end

  def test_without_a_limit_nothing_is_over
    assert_none(/no limit is set/, decide(1700, workers: FAT, limit_bytes: nil))
  end

  def test_an_unknown_working_set
    assert_none(/\ANothing to do: the working set is unknown\.\z/, decide(nil, workers: FAT))
    assert_none(/for 1 readings?|unknown|below/, decide(([nil] * 19) + [1700], workers: FAT))
  end

  def test_a_leak_that_reaches_the_limit_within_two_hours_counts_before_the_soft_limit
    leaks = (0..3).to_h { |index| [index, { leak: 100 }] }
    decision = decide(1300, workers: leaks)

    assert_equal :restart, decision.action, decision.reason
    assert_match(/leaks reach it in 1(05|\.75)? ?(minutes|hours)/, decision.reason)
    assert_equal 500 * MEBIBYTE, decision.over_bytes # 1,300 MiB, plus 400 MiB an hour for two hours, less 1,600
    assert_none(/below the soft limit/, decide(1100, workers: leaks))
  end

  def test_a_leak_of_one_worker_counts_and_one_that_shrinks_does_not
    assert_restart(1, decide(1300, workers: { 1 => { leak: 351 } }))
    assert_none(/below/, decide(1300, workers: { 1 => { leak: 349 } }))
    assert_restart(1, decide(1300, workers: { 1 => { leak: 351 }, 2 => { leak: -90 } }))
  end

  # --- Readings that cannot be relied on

  def test_readings_before_a_gap_do_not_count
    readings = Groups.take(1700, workers: FAT)
    late = Groups.take([1700] * 2, workers: FAT)
    policy = Memscope::Policy.new(gap_seconds: 20)

    assert_none(/for 1 reading over 0 s/, policy.decide(readings))
    assert_none(/for 2 readings/, Memscope::Policy.new.decide(readings.first(10) + late))
  end

  def test_a_clock_that_goes_backwards
    newest = Groups.take([1700], workers: FAT).first
    earlier = Groups.take(1700, workers: FAT, every: -30)

    assert_none(/for 1 reading over/, Memscope::Policy.new.decide([*earlier, newest]))
  end

  # --- A purge, then a restart

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
    assert_none(/would return 24\.9 MiB, too little of the 100\.0 MiB/,
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

  def test_above_the_hard_limit_two_readings_are_enough
    assert_restart(2, decide(([1500] * 5) + ([1950] * 2), workers: FAT))
    assert_none(/for 1 reading over/, decide(([1500] * 5) + [1950], workers: FAT))
  end

  # --- What hurt people

  # puma_worker_killer#8, #14, #106: the sum of RSS counts shared pages for each worker.
  def test_shared_pages_counted_per_worker_killed_workers_for_ever
    assert_none(/below the soft limit/, decide(1000, workers: (0..3).to_h { |index| [index, { private: 900 }] }))
  end

  # puma_worker_killer#11: the memory never recedes, and the kills go on.
  def test_kills_that_do_not_lower_the_group_went_on
    useless = ->(ago) { [Groups.outcome(:restart, 0, ago, expected: 300, returned: 149)] }

    assert_none(/restarting does not help: of the 300\.0 MiB expected .* 149\.0 MiB came back.*needed again at once/,
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

  def test_the_next_waits_until_the_last_is_measured
    pending = [Groups.outcome(:purge, 0, 100, booted_seconds: Groups::NOW - 50)]

    assert_none(/is not measured yet/, decide(1700, workers: FAT, outcomes: pending))
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

  # puma_worker_killer#104: one restart per tick is too slow far above the limit, and too fast otherwise.
  def test_the_rate_did_not_follow_the_headroom
    last = ->(ago) { [Groups.outcome(:restart, 0, ago, returned: 100)] }

    assert_none(/last restart was 600 s ago, and \d+ s must pass/, decide(1700, workers: FAT, outcomes: last[600]))
    assert_restart(2, decide(1700, workers: FAT, outcomes: last[1100]))
    assert_restart(2, decide(1950, workers: FAT, outcomes: last[600]))
    assert_none(/last restart was 200 s ago/, decide(1950, workers: FAT, outcomes: last[200]))
  end

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
    assert_none(/nothing is known to start it again: the setting policy_supervised is false/,
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

  # --- Observed decisions, and values

  def test_what_was_only_observed_counts_for_the_interval_and_is_not_waited_for
    seen = ->(ago) { [Groups.outcome(:restart, 0, ago, executed: false)] }

    assert_none(/last restart was 600 s ago/, decide(1700, workers: FAT, outcomes: seen[600]))
    assert_restart(2, decide(1700, workers: FAT, outcomes: seen[1100]))
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

  def test_json
    purge = Groups.outcome(:purge, 1, 9)
    group = Groups.take(1700, workers: { 1 => { leak: 3, private: 3 } }, outcomes: [purge]).last

    [group, decide(1700, workers: FAT), decide(1500)].each do |value|
      assert_equal value, value.class.from_h(JSON.parse(value.to_json))
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
