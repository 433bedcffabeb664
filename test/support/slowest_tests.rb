# frozen_string_literal: true

require "minitest"

# Prints the tests that took longest, after all of them have run: as many as MEMSCOPE_SLOWEST says. A verbose run prints
# how long each one took, too, but mixes the lines of parallel tests.
class SlowestTests < Minitest::Reporter
  def initialize(count, io)
    super(io)
    @count = count
    @results = []
  end

  def record(result) = @results << result

  def report
    io.puts "", "The slowest of #{@results.size} tests, which took #{@results.sum(&:time).round} s one by one:"
    @results.max_by(@count, &:time).each do |result|
      io.puts format("%8.2f s  %s#%s", result.time, result.klass, result.name)
    end
  end
end

# Minitest calls this for the extension of this name.
def Minitest.plugin_slowest_tests_init(options)
  count = Integer(ENV.fetch("MEMSCOPE_SLOWEST", "0"))
  reporter << SlowestTests.new(count, options[:io]) if count.positive?
end
Minitest.extensions << "slowest_tests"
