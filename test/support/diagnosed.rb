# frozen_string_literal: true

require "json"
require_relative "charts"

# Tests of diagnoses of processes as charts draw them.
module Diagnosed
  # For test classes.
  module Finds
    # Defines a test for each rule: the cause, the severity and the MiB (nil for no amount) of its finding.
    def finds(**rules)
      rules.each do |id, (severity, about, chart)|
        define_method("test_#{id}") do
          found = assert_found(severity, id, **chart)
          about.nil? ? assert_nil(found.affected_bytes) : assert_equal(mebibytes(about), found.affected_bytes)

          assert(found.recoverable_bytes || found.unrecoverable_reason)
          assert_operator diagnose(**chart).to_s.lines.map { |line| line.chomp.length }.max, :<=, 80
        end
      end
    end
  end

  def self.included(test_class) = test_class.extend(Finds)

  MEBIBYTE = Charts::MEBIBYTE
  EARLIER = "2026-11-21T02:00:00.000Z"
  LATER = "2026-11-21T02:01:00.000Z"
  # One critical finding and two warnings.
  SICK = { malloc: Charts.jemalloc(slab_slack: 64, dirty: 100),
           arenas: [{ dirty_bytes: 100 * MEBIBYTE, dirty_decay_ms: -1 }],
           cgroup: { limit_bytes: 310 * MEBIBYTE } }.freeze

  def diagnose(since: nil, **chart) = Memscope::Doctor.diagnose(Charts.evidence(**chart), since: since)

  def jemalloc(**given) = Charts.jemalloc(**given)

  def earlier(pid: 7, **chart) = diagnose(**chart, ledger: { at: EARLIER, pid: pid })

  def later(since, pid: 7, **chart) = diagnose(**chart, ledger: { at: LATER, pid: pid }, since: since)

  # The diagnosis of a process that changed from one chart to another within a minute.
  def between(before, now)
    since = diagnose(**before, ledger: { at: EARLIER, pid: 7, **before[:ledger].to_h })
    diagnose(**now, ledger: { at: LATER, pid: 7, **now[:ledger].to_h }, since: since)
  end

  def row(id, mebibytes, **detail) = { rows: [Bodies.row(id, id.name, mebibytes, **detail)] }

  def mebibytes(number) = number * MEBIBYTE

  # The finding with that id.
  def finding(diagnosis, id)
    diagnosis.find { |found| found.id == id } || flunk("no #{id}:\n#{diagnosis}")
  end

  def assert_clear(id, diagnosis)
    refute_includes diagnosis.map(&:id), id
    assert_equal :clear, diagnosis.checked.find { |check| check.id == id }.outcome
  end

  def assert_found(severity, id, **chart)
    found = finding(diagnose(**chart), id)

    assert_equal severity, found.severity, id
    refute_empty found.evidence
    assert_equal found, Memscope::Finding.from_h(JSON.parse(found.to_json))
    found
  end
end
