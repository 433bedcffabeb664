# frozen_string_literal: true

require_relative "../test_helper"

# Ractors beside what hooks Ruby's allocations: the process neither dies nor hangs. `rake battery:ractors` runs each way
# RUNS times, and the same Ractors without memscope: what happens to those is Ruby's own fault, and is only shown.
class RactorsTest < MemscopeTest
  parallelize_me!

  RUNS = Integer(ENV.fetch("RUNS", "1"))
  SECONDS = ENV.fetch("MEMSCOPE_RACTOR_SECONDS", "0.3")
  WORKLOAD = File.join(__dir__, "../support/workloads/ractors.rb")
  CONTROLS = ENV.key?("RUNS") ? %w[control control_storm] : []

  # The command of each Ruby, by name: the battery has compiled the extension for the others.
  RUBIES = ENV.fetch("MEMSCOPE_RACTOR_RUBIES", "").split(":").to_h do |prefix|
    name = File.basename(prefix)
    [name, ["#{prefix}/bin/ruby", "--disable-gems", "-I#{ChildProcess::ROOT}/tmp/#{name}", "-I#{ChildProcess::ROOT}/lib"]]
  end.merge(RUBY_VERSION => ChildProcess.ruby).freeze

  %w[profile default storm measure malloc unnoticed].product(RUBIES.keys) do |way, ruby|
    define_method("test_#{way}_with_#{ruby}") { assert_empty deaths(way, ruby) }
  end

  CONTROLS.product(RUBIES.keys) do |way, ruby|
    define_method("test_#{way}_with_#{ruby}") { deaths(way, ruby) }
  end

  private

  # @return [Array<String>] how those runs ended that died or hung
  def deaths(way, ruby)
    died, lived = Array.new(RUNS) { run_one(way, ruby) }.partition { |ended| ended.is_a?(String) }
    puts "#{ruby} #{way}: #{died.size} of #{RUNS} died; Ractors were created #{lived.sum} times" if ENV.key?("RUNS")
    died
  end

  # @return [Integer, String] how many times Ractors were created, or how it ended
  def run_one(way, ruby)
    result = ChildProcess.run_command(*RUBIES.fetch(ruby), WORKLOAD, way, SECONDS)
    result.success? ? Integer(result.out) : result.to_s
  rescue ChildProcess::Failure => e
    e.message
  end
end
