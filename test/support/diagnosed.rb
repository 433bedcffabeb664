# frozen_string_literal: true

require "json"
require_relative "charts"

# Tests of diagnoses of processes as charts draw them.
module Diagnosed
  MEBIBYTE = Charts::MEBIBYTE
  EARLIER = "2026-11-21T02:00:00.000Z"
  LATER = "2026-11-21T02:01:00.000Z"

  def diagnose(since: nil, **chart) = Memscope::Doctor.diagnose(Charts.evidence(**chart), since: since)

  def jemalloc(**given) = Charts.jemalloc(**given)

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
