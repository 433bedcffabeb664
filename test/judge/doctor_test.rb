# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/diagnosed"
require_relative "../support/notified"
require "minitest/mock"

class DoctorTest < MemscopeTest
  include Diagnosed
  include Notified

  def test_nothing_wrong
    [diagnose, diagnose(malloc: jemalloc)].each do |diagnosis|
      assert_predicate diagnosis, :healthy?
      assert_empty diagnosis.map(&:id)
      assert_operator diagnosis.checked.count { |check| check.outcome == :clear }, :>=, 10
    end
  end

  def test_subscribers_hear_of_findings_that_appear_or_become_worse
    sick = diagnose(**SICK)
    charts = [{}, SICK, SICK, SICK.except(:cgroup), SICK]
    heard = payloads(:finding) do
      charts.each do |chart|
        Memscope::Diagnosis::Evidence.stub(:read, Charts.evidence(**chart)) { Memscope.doctor }
      end
    end

    assert_equal(%i[near_limit dirty_pages slab_slack near_limit], heard.map { |payload| payload[:id] })
    assert_equal sick.first.to_h, heard.first
    assert_empty(payloads(:finding) { Memscope.doctor }.map { |payload| payload[:severity] } - %i[warning critical])
  ensure
    Memscope::Runtime.current.severities = nil
  end

  def test_a_finding_is_worse_than_itself_as_information
    sick = diagnose(**SICK)
    worst = sick.first

    { critical: [], warning: [worst], info: [worst], nil => [worst] }.each do |severity, worse|
      assert_equal worse, sick.worse_than({ **sick.severities, worst.id => severity }.compact)
    end
  end

  def test_every_rule_is_checked_once
    rules = Memscope::Doctor::Rules.all.map(&:id)

    assert_equal rules.uniq, rules
    assert_equal rules, diagnose.checked.map(&:id)
  end

  def test_without_a_ledger_nothing_is_judged
    malloc = Charts.glibc
    nothing = { rows: [], rss_bytes: nil, source: :none, held_by_objects_bytes: nil }
    diagnosis = diagnose(malloc: malloc, ledger: nothing)

    assert_nil diagnosis.healthy?
    assert_includes diagnosis.to_s, "No verdict: the RSS of this process is unknown"
    refute_includes diagnosis.to_s, "Nothing wrong"
  end

  # A pid is reused; in another container, or after a reboot, it means another process.
  def test_another_process_is_refused
    here = Memscope.cgroup.process.to_h
    elsewhere = earlier.to_h.then do |body|
      ledger = { **body[:evidence][:ledger], process: { **here, boot_id: "another" } }
      { **body, evidence: { **body[:evidence], ledger: ledger } }
    end

    [-> { later(earlier(pid: 1)) }, -> { later(earlier(pid: 8)) }, lambda {
      later(earlier, environment: { started: 1_001 })
    },
     -> { later(Memscope::Diagnosis.from_h(elsewhere)) }].each do |comparison|
      assert_match(/\AMemscope\.doctor: since: given a diagnosis of another process \(pid [178], .*\), allowed: /,
                   assert_raises(ArgumentError, &comparison).message)
    end
  end

  def test_anything_else_is_refused
    [7, [], "no JSON", {}, { "kind" => "ledger" }, Memscope.ledger].each do |since|
      assert_raises(ArgumentError) { Memscope::Doctor.diagnose(Charts.evidence, since: since) }
    end
  end
end
