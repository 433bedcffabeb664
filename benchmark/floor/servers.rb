# frozen_string_literal: true

require "open3"
require "rbconfig"
require_relative "floor"

# All processes that are compared run on one processor: another one may be half as fast for minutes, because of its
# neighbours on the host. Without taskset (util-linux), they run wherever the kernel puts them.
ONE_PROCESSOR = %w[taskset --cpu-list 0].freeze
PINNED = (system(*ONE_PROCESSOR, "true", err: File::NULL) ? ONE_PROCESSOR : []).freeze

# A child process that runs batches on request: a program of this folder that calls `answer` (answers.rb).
class Server
  def initialize(program, env, *prefix)
    @in, @out, @process = Open3.popen2({ **env, "RUBYOPT" => nil }, *PINNED, *prefix, RbConfig.ruby, "-Ilib", *program)
    raise "#{program.join(' ')} did not start" unless @out.gets
  end

  def pid = @process.pid

  # @param how [String, nil] as in answers.rb: "profiled", "malloc" or nil
  def ask(count, how = nil)
    @in.puts [count, how].compact.join(" ")
    @in.flush
    Integer(@out.gets)
  end

  def stop
    @in.close
    @process.value
  end
end

# One side of a comparison: the environment of a process, and how its rounds are run.
Side = Struct.new(:env, :how)

# The speed of the subject as a share of the floor's, pair by pair.
def ratios(subject, floor, servers, batch:, pairs:)
  Array.new(pairs) do |turn|
    pair = turn.even? ? [subject, floor] : [floor, subject]
    times = pair.map { |side| servers.fetch(side.env).ask(batch, side.how) }
    turn.even? ? times[1].fdiv(times[0]) : times[0].fdiv(times[1])
  end
end

# The speed of a process varies by some percent from start to start, with the addresses of its memory. So the processes
# are started anew many times, and each start counts once, by the median of its pairs.
#
# @param comparisons [Hash{Object => Array(Side, Side)}] the subjects and the floors, by their names
# @return [Hash] by name, the interval of the subject's speed as a share of the floor's
def compare(program, comparisons, starts:, batch:, pairs:)
  raise ArgumentError, "starts: given #{starts}, allowed: #{FEWEST_STARTS} or more" if starts < FEWEST_STARTS

  found = Array.new(starts) do
    servers = comparisons.values.flatten.map(&:env).uniq.to_h { |env| [env, Server.new(program, env)] }
    medians = comparisons.transform_values do |sides|
      Floor.median(ratios(*sides, servers, batch: batch, pairs: pairs))
    end
    servers.each_value(&:stop)
    medians
  end
  comparisons.to_h { |name, _| [name, interval(found.map { |medians| medians[name] })] }
end

FEWEST_STARTS = 10

# The median, and the bounds of its 95 % confidence interval (by order statistics).
def interval(ratios)
  sorted = ratios.sort
  low = (sorted.size / 2) - (0.98 * Math.sqrt(sorted.size)).ceil
  [Floor.median(sorted), sorted[low], sorted[-1 - low]]
end

def say(what, *ratio, note)
  puts "#{what.ljust(42)} #{ratio.map { |number| format('%.4f', number) }.join(' ')}  (#{note})"
end
