# frozen_string_literal: true

require_relative "launching"

# Programs that `memscope report` starts, and the ledgers that they print.
module ReportingPrograms
  include Launching

  def report(*arguments, **options) = launch("report", *arguments, **options)

  # A program's script that waits until `count` lines of JSON have been reported to standard error.
  def until_reported(count) = "sleep 0.01 until File.read('/proc/self/fd/2').count(\"\\n\") >= #{count}"

  # The ledgers that a program's standard error holds.
  def ledgers(text)
    text.lines.grep(/\A\{"schema"/).map { |line| Memscope::Ledger.from_h(JSON.parse(line)) }
  end

  def assert_one_report(ran, pid: nil)
    reports = ledgers(ran.err)

    assert_equal 1, reports.size, ran.to_s
    assert_equal pid, reports.first.pid if pid
    reports.first
  end
end
