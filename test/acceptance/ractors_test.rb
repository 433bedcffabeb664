# frozen_string_literal: true

require_relative "../test_helper"

# Ractors beside what hooks Ruby's allocations: the process neither dies nor hangs. `rake battery:ractors` runs each way
# RUNS times, and the same Ractors without memscope: what happens to those is Ruby's own fault, and is only shown.
class RactorsTest < MemscopeTest
  parallelize_me!

  RUNS = Integer(ENV.fetch("RUNS", "1"))
  SECONDS = ENV.fetch("MEMSCOPE_RACTOR_SECONDS", "0.3")
  WORKLOAD = File.join(__dir__, "../support/workloads/ractors.rb")

  %w[profile default storm measure malloc unnoticed].each do |way|
    define_method("test_#{way}") do
      died = runs(way) - [:lived]

      assert_empty died
    end
  end

  def test_control
    skip "the battery's" unless ENV.key?("RUNS")

    runs("control")
  end

  private

  # @return [Array<Symbol, String>] for each run :lived, or how it ended
  def runs(way)
    ended = Array.new(RUNS) { run_one(way) }
    puts "#{RUBY_VERSION} #{way}: #{RUNS - ended.count(:lived)} of #{RUNS} died" if ENV.key?("RUNS")
    ended
  end

  def run_one(way)
    result = ChildProcess.run_command(*ChildProcess.ruby, WORKLOAD, way, SECONDS)
    result.success? ? :lived : result.to_s
  rescue ChildProcess::Failure => e
    e.message
  end
end
