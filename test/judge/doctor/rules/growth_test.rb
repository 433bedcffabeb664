# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/diagnosed"
require_relative "../../../support/histories"

# The rules of growth: by the process's history, and since an earlier diagnosis.
class DoctorGrowthRulesTest < MemscopeTest
  include Diagnosed

  def test_a_leak_by_the_history
    verdict = Histories.judge(5) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour } }
    found = finding(diagnose(verdict: verdict), :leak)

    assert_match(/\Aleak of native memory: \+[34]\d\.\d MiB.h\z/, found.title)
    assert_includes found.explanation, verdict.sentence
    assert_equal verdict.remedy, found.remedy
    assert_in_delta mebibytes(200), found.affected_bytes, mebibytes(40)
    assert_includes found.evidence.keys, :lasting_seconds
    diagnosis = diagnose(verdict: verdict)

    assert_equal diagnosis, Memscope::Diagnosis.from_json(diagnosis.to_json)
    steady = diagnose(verdict: Histories.judge(5) { {} })

    assert_clear :leak, steady
    assert_equal :inapplicable, diagnose.checked.find { |check| check.id == :leak }.outcome
  end

  # A worker after a deploy: code and caches fill for half an hour.
  def test_a_healthy_worker_in_its_first_hour
    [1, 3, 5, 10, 30, 60].each do |minutes|
      verdict = Histories.judge(Rational(minutes, 60)) do |hour|
        grown = 150 * (1 - Math.exp(-6 * hour))
        { malloc: grown, malloc_in_use: grown, held: 0.7 * grown, ruby_heap: grown / 4, live_bytes: grown / 5 }
      end
      diagnosis = diagnose(verdict: verdict)

      assert_predicate diagnosis, :healthy?, minutes
      assert_match(/By its history: (Too early to tell|Filling|Steady)/, diagnosis.to_s, minutes)
      refute_match(%r{MiB/h}, diagnosis.to_s, minutes) if minutes < 60
    end
  end

  def test_growth_since_an_earlier_diagnosis_cites_the_history
    leak = Histories.judge(5) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour } }
    since = earlier(malloc: Charts.glibc(untracked: 2))
    grown = later(since, malloc: Charts.glibc(untracked: 42), verdict: leak)

    assert_match(/By its history: Leak of native memory/, finding(grown, :native_growth).explanation)
    assert_equal %i[native_growth leak], grown.map(&:id).first(2)
  end

  def test_native_growth
    since = earlier(malloc: Charts.glibc(untracked: 2))
    grown = later(since, malloc: Charts.glibc(untracked: 42))
    found = finding(grown, :native_growth)

    assert_equal [:warning, mebibytes(40), nil, 60.0],
                 [found.severity, found.affected_bytes, found.recoverable_bytes, found.evidence[:seconds]]
    assert_includes found.explanation, "In 60.0 s, it grew from 2.0 MiB to 42.0 MiB. " # too short for MiB an hour
    refute_match(/Read again in a few minutes/, finding(grown, :native_memory).explanation)
    traced = diagnose(malloc: Charts.glibc(untracked: 42), environment: { allocation_tracing: true },
                      ruby_heap: { live_slots: 655_360 })
    first = finding(diagnose(malloc: Charts.glibc(untracked: 42)), :native_memory)

    assert_match(/Tracing takes up to 60\.0 MiB of it\./, finding(traced, :native_memory).explanation)

    assert_match(/Read again in a few minutes/, first.explanation)
    read = Memscope::Diagnosis.from_json(since.to_json)

    assert_equal grown.findings, later(read, malloc: Charts.glibc(untracked: 42)).findings
  end

  LEFT_OUT = { held_by_objects_bytes: "a lower bound that leaves out 47 of type Arena" }.freeze

  # Which objects were left out may differ from one diagnosis to the next: 60 MiB of sizes that were left out before
  # are no growth of objects, and 60 MiB that are left out now are no growth of native memory.
  def test_growth_without_all_sizes_is_growth_of_what_is_in_use
    amounts = [20, 60]
    some = [{}, LEFT_OUT]
    some.product(some).drop(1).each do |before, after|
      since = diagnose(malloc: Charts.glibc(untracked: 62), ledger: { at: EARLIER, pid: 7, reasons: before })
      same, grown = amounts.map do |arenas|
        diagnose(malloc: Charts.glibc(untracked: 2, arenas_in_use: arenas), since: since,
                 ledger: { at: LATER, pid: 7, reasons: after }, garbage: nil)
      end

      assert_clear :in_use_growth, same
      found = finding(grown, :in_use_growth)

      assert_equal [:info, mebibytes(40)], [found.severity, found.affected_bytes]
      assert_includes found.explanation, LEFT_OUT[:held_by_objects_bytes]
      refute_includes grown.map(&:id), :native_growth
      refute_includes grown.map(&:id), :object_growth
      assert_equal :none, same.verdict
    end
  end

  def test_garbage_is_no_growth_of_what_is_in_use
    chart = lambda do |in_use, garbage|
      { malloc: Charts.glibc(arenas_in_use: in_use), garbage: Charts.garbage(garbage) }
    end
    since = diagnose(**chart.call(20, 0), ledger: { at: EARLIER, pid: 7, reasons: LEFT_OUT })

    assert_clear :in_use_growth, later(since, **chart.call(60, 40))
    assert_equal :warning, finding(later(since, **chart.call(60, 0)), :in_use_growth).severity
  end

  def test_what_stays_or_falls_is_no_growth
    since = earlier(malloc: Charts.glibc(untracked: 42))

    [42, 2].each { |untracked| assert_clear :native_growth, later(since, malloc: Charts.glibc(untracked: untracked)) }
  end

  def test_growth_of_objects_informs
    { 40 => :info, nil => :info, 10 => :warning }.each do |garbage, severity|
      found = finding(diagnose(malloc: Charts.glibc(arenas_in_use: 60), since: earlier,
                               ledger: { at: LATER, pid: 7, garbage_max_bytes: garbage && mebibytes(garbage) }),
                      :object_growth)

      assert_equal [severity, mebibytes(40)], [found.severity, found.affected_bytes]
      assert_equal "memscope heap --pid 7", found.remedy
    end
  end

  def test_what_cannot_be_compared
    reason = ->(diagnosis) { diagnosis.checked.find { |check| check.id == :native_growth }.reason }

    assert_match(/no earlier/, reason.call(diagnose))
    assert_match(/is not earlier/, reason.call(diagnose(ledger: { at: EARLIER, pid: 7 }, since: earlier)))
  end
end
