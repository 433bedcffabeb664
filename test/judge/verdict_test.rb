# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/histories"
require_relative "../support/notified"
require "minitest/mock"

# Verdicts on histories with known truth. How well they distinguish leaks from all else over days is tested in
# test/engine/trend/verdict_battery_test.rb, and those on running processes in test/acceptance/verdict_test.rb.
class VerdictTest < MemscopeTest
  include Notified

  parallelize_me!

  MEBIBYTE = 1_048_576
  Room = Struct.new(:limit_bytes, :working_set_bytes)

  def leak(...) = Histories.leak(...)

  def saturated(hour) = 60 * (1 - Math.exp(-hour))

  Histories::LEAKS.each_key do |layer|
    define_method("test_a_leak_of_#{layer}") do
      verdict = leak(layer)

      assert_equal [:leak, layer], [verdict.kind, verdict.layer], verdict.sentence
      assert_operator verdict.shares[layer], :>, 0.9
      assert_in_delta 1, verdict.shares.values.sum, 0.001
      assert_in_delta 40 * MEBIBYTE, verdict.bytes_per_hour, 4 * MEBIBYTE
      assert_includes verdict.bytes_per_hour_low..verdict.bytes_per_hour_high, 40 * MEBIBYTE
      assert_includes verdict.remedy, "--pid #{verdict.pid}"
      assert_empty verdict.reasons
      assert_in_delta verdict.growth.each_value.sum, 200 * MEBIBYTE, 2 * MEBIBYTE
      assert_equal [60, 300, 59 * 300], verdict.evidence.values_at(:points, :epoch_seconds, :span_seconds)
    end
  end

  # No event for the first verdicts of a process, and for a cache that fills.
  def test_subscribers_hear_of_growth_that_begins_moves_and_ends
    steady = Histories.judge(5) { {} }
    filling = Histories.judge(6) { |hour| Histories::LEAKS[:objects].drop(2).to_h { |name| [name, saturated(hour)] } }
    verdicts = [steady, filling, leak(:native), leak(:native), leak(:objects), steady, filling]
    heard = payloads(:verdict) do
      verdicts.each { |verdict| Memscope::Verdict.stub(:of, verdict) { Memscope::Verdict.judge(nil) } }
    end

    assert_equal([%i[leak native filling], %i[leak objects leak], %i[steady leak]],
                 heard.map { |payload| payload.values_at(:verdict, :layer, :previous).compact })
    assert_equal verdicts[2].to_h, heard.first.except(:sentence, :previous)
    assert_equal verdicts[2].sentence, heard.first[:sentence]
    assert_operator JSON.generate(heard.first).bytesize, :<, 4096
  ensure
    Memscope::Runtime.current.verdict = nil
  end

  def test_a_mixture_is_shares
    verdict = Histories.judge(5) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour, held: 28 * hour } }

    assert_equal %i[leak objects], [verdict.kind, verdict.layer]
    assert_in_delta 0.7, verdict.shares[:objects], 0.07
    assert_in_delta 0.3, verdict.shares[:native], 0.07
  end

  def test_a_leak_reaches_the_limit
    verdict = leak(:native, cgroup: Room.new(1024 * MEBIBYTE, 824 * MEBIBYTE))

    assert_in_delta 5 * 3600, verdict.eta_seconds, 1800
    assert_includes verdict.eta_seconds_low..verdict.eta_seconds_high, 5 * 3600
    assert_match(/\ALeak of native memory: \+(39|4\d)\.\d MiB.h \(\d\d\.\d to \d\d\.\d\) for [45] hours /,
                 verdict.sentence)
    assert_match(/, which alone reaches the limit of 1,024\.0 MiB in 5 hours \(\d hours to \d hours\)\.\z/,
                 verdict.sentence)
    assert_match(/; 824\.0\s+MiB\s+of\s+the\s+container's\s+1,024\.0\s+MiB\s+is\s+in\s+use\.$/, verdict.to_s)
  end

  # 40 MiB an hour are 8 KiB of each of 5,120 requests.
  def test_a_leak_per_request
    leak = leak(:native, requests: 5120)

    assert_in_delta 5120 * leak.evidence[:lasting_seconds] / 3600.0, leak.evidence[:requests], 100
    assert_in_delta 8192, leak.bytes_per_request, 512
    assert_match(/ for [45] hours, 8 KiB per request \(\d+ % native memory/, leak.sentence)
    assert_nil leak(:native, requests: 10).bytes_per_request
    assert_nil leak(:native, without: [:requests]).evidence[:requests]
    assert_nil Histories.judge(5, requests: 5120) { {} }.bytes_per_request
  end

  # What the whole machine uses does not matter to a process without a limit.
  def test_without_a_limit_no_working_set_is_shown
    verdict = leak(:native, cgroup: Room.new(nil, 824 * MEBIBYTE))

    assert_nil verdict.eta_seconds
    refute_match(/working set/, verdict.to_s)
  end

  def test_a_cache_fills
    verdict = Histories.judge(6) { |hour| Histories::LEAKS[:objects].drop(2).to_h { |name| [name, saturated(hour)] } }

    assert_equal %i[filling objects], [verdict.kind, verdict.layer]
    assert_in_delta 263 * MEBIBYTE, verdict.evidence[:ends_near_bytes], 8 * MEBIBYTE
    assert_match(/\AFilling: RSS grew \(\d+ % Ruby objects.*, and ends near 26\d\.\d MiB\.\z/, verdict.sentence)
  end

  def test_one_fat_request_is_a_step
    verdict = Histories.judge(5) { |hour| hour < 2.5 ? {} : { malloc: 80, malloc_in_use: 80 } }

    assert_equal %i[step native], [verdict.kind, verdict.layer]
    assert_in_delta Histories.time(9000), verdict.since, 302
    assert_in_delta 80 * MEBIBYTE, verdict.evidence[:step_bytes], 2 * MEBIBYTE
    assert_match(/\AStep: RSS grew by (79|80)\.\d MiB at [\d-]{10} \d\d:\d\d UTC and stayed \(\d+ % native memory/,
                 verdict.sentence)
  end

  def test_what_does_not_grow_is_steady
    verdict = Histories.judge(12) { {} }

    assert_equal [:steady, nil, nil], [verdict.kind, verdict.layer, verdict.remedy]
    assert_operator verdict.detectable_bytes_per_hour, :<, 12 * MEBIBYTE
    assert_match(/\ASteady: RSS is 20[23]\.\d MiB, and growth above 1\d\.\d MiB.h would show\.\z/, verdict.sentence)
  end

  def test_what_objects_hold_is_unknown
    verdict = Histories.judge(5, without: %i[held], reasons: { held: "it cannot fork" }) do |hour|
      { malloc: 40 * hour, malloc_in_use: 40 * hour }
    end

    assert_equal %i[leak unattributed], [verdict.kind, verdict.layer]
    assert_equal({ objects: "it cannot fork", native: "it cannot fork" }, verdict.reasons)
  end

  def test_what_objects_hold_is_no_longer_sampled
    verdict = leak(:native, held_until: 1)

    assert_equal :unattributed, verdict.layer
    assert_match(/\Aheld has no sample in the last \d+ minutes judged\z/, verdict.reasons[:native])
  end

  def test_pages_lost_after_a_fork
    lost = ->(hour) { { uss: saturated(hour) } }
    forked = Histories.judge(6, baseline: MEBIBYTE, &lost)

    assert_equal %i[filling shared], [forked.kind, forked.layer]
    assert_predicate forked, :unshared?
    assert_in_delta 1, forked.shares[:shared], 0.001
    assert_in_delta 60 * MEBIBYTE, forked.evidence[:unshared_bytes], 2 * MEBIBYTE
    assert_match(/\AFilling: RSS does not grow, but (59|60)\.\d MiB shared with the parent has become private\.\z/,
                 forked.sentence)
    assert_equal forked, Memscope::Verdict.from_json(forked.to_json)
    assert_equal :steady, Histories.judge(6, &lost).kind
  end

  # Buckets of the last hour, of twelve hours and of what came before are of different lengths.
  def test_two_days
    skip "judged before, by the same C" if ChildProcess::BRIEF
    verdict = Histories.judge(48) { |hour| { malloc: 6 * hour, malloc_in_use: 6 * hour } }

    assert_equal %i[leak native], [verdict.kind, verdict.layer], verdict.sentence
    assert_in_delta 6 * MEBIBYTE, verdict.bytes_per_hour, MEBIBYTE
    assert_equal 48 * 12, verdict.evidence[:points]
  end

  def test_epochs_have_a_major_gc_if_enough_remain
    skip "judged before, by the same C" if ChildProcess::BRIEF
    seconds = [60, 8, 1].to_h do |major_gcs|
      [major_gcs, Histories.judge(10, major_gcs: major_gcs) { {} }.evidence[:epoch_seconds]]
    end

    assert_equal({ 60 => 300, 8 => 600, 1 => 1200 }, seconds)
    assert_equal 300, Histories.judge(3, major_gcs: 1) { {} }.evidence[:epoch_seconds]
  end

  def test_time_in_which_the_machine_slept_does_not_count
    verdict = Histories.judge(6) { |hour| {} unless hour.between?(2, 4) }

    assert_equal 48, verdict.evidence[:points]
    assert_equal :steady, verdict.kind
  end

  # Growth is called a leak when it has been found for two hours, a judgement every half hour.
  def test_judgements_in_a_row_call_a_leak_and_a_fork_forgets_them
    skip "judged before, by the same C" if ChildProcess::BRIEF
    here, child = child_json(<<~RUBY, requires: ["json", File.expand_path("../support/histories", __dir__)])
      Histories.native.open_history
      judge = lambda do |hours, after|
        Histories.add(hours, after: after) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour } }
        Histories.verdict(hours, replayed: nil).kind
      end
      here = (10..16).map { |half| judge.call(half / 2r, half == 10 ? 0 : (half - 1) / 2r) }
      reader, writer = IO.pipe
      Process.wait(fork { writer.puts(judge.call(17 / 2r, 0)) })
      writer.close
      puts JSON.generate([here, reader.read.chomp])
    RUBY

    assert_equal %w[too_early leak], here.values_at(0, -1)
    assert_equal here, here.sort.reverse
    assert_equal "too_early", child
  end

  def test_without_a_history
    verdict = Memscope::Verdict.from_h(child_json("puts Memscope.verdict.to_json", requires: ["json"]))

    assert_equal :too_early, verdict.kind
    assert_equal "Not judged: a history needs Memscope::History.start or MEMSCOPE_HISTORY=1.",
                 verdict.sentence
    assert_match(/History\.start/, verdict.remedy)
  end

  def test_json_both_ways
    verdict = leak(:objects)
    body = JSON.parse(verdict.to_json)

    assert_equal %w[verdict leak], body.values_at("kind", "verdict")
    assert_equal verdict, Memscope::Verdict.from_json(verdict.to_json)
    assert_predicate verdict, :frozen?
  end

  def test_wrong_arguments_are_named
    assert_equal 'Memscope.verdict: now: given "yes", allowed: true, false',
                 assert_raises(ArgumentError) { Memscope.verdict(now: "yes") }.message
  end

  def test_the_page_with_a_history_that_has_not_begun
    nothing = Memscope.history

    assert_nil nothing.started_at
    refute_match(/since/, leak(:native).to_s(history: nothing))
    assert_equal 1, Memscope.verdict.to_s.scan("a history needs").size
  end
end
