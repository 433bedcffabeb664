# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/decided"

# Which readings count, and when a group is above its limits.
class PolicyReadingWindowTest < MemscopeTest
  include Decided

  def test_a_load_wave_does_not_last_long_enough
    assert_none(/above the soft limit, 80 %, for 8 readings over 210 s \(needed: 5 readings over \d+ s\)/,
                decide(([1500] * 12) + ([1700] * 8), workers: FAT))
    assert_none(/below the soft limit/, decide(([1700] * 19) + [1590], workers: FAT))
  end

  def test_five_readings_are_needed_however_far_apart
    assert_none(/for 4 readings over 450 s/, decide([1700] * 4, every: 150, workers: FAT))
    assert_restart(2, decide([1700] * 5, every: 150, workers: FAT))
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

  def test_above_the_hard_limit_two_readings_are_enough
    assert_restart(2, decide(([1500] * 5) + ([1950] * 2), workers: FAT))
    assert_none(/for 1 reading over/, decide(([1500] * 5) + [1950], workers: FAT))
  end
end
