# frozen_string_literal: true

require "open3"
require "rbconfig"
require "tmpdir"
require_relative "floor"

# All processes that are compared run on one processor: another has other neighbours on the host, which may make it
# half as fast for minutes. Without util-linux they run where the kernel puts them.
ONE_PROCESSOR = %w[taskset --cpu-list 0].freeze
PINNED = (system(*ONE_PROCESSOR, "true", err: File::NULL) ? ONE_PROCESSOR : []).freeze

# A process of its own that is asked for batches: a program of this folder that answers (answers.rb).
class Server
  def initialize(program, env, *prefix)
    @in, @out, @process = Open3.popen2({ **env, "RUBYOPT" => nil }, *PINNED, *prefix, RbConfig.ruby, "-Ilib", *program)
    raise "#{program.join(' ')} did not start" unless @out.gets
  end

  def pid = @process.pid

  # @param how [String, nil] as answers.rb has it
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

# One of two that are compared: the environment of a process, and how its rounds are run.
Side = Struct.new(:env, :how)

# The speed of one as a share of the other's, pair by pair.
def ratios(subject, floor, servers, batch:, pairs:)
  Array.new(pairs) do |turn|
    pair = turn.even? ? [subject, floor] : [floor, subject]
    times = pair.map { |side| servers.fetch(side.env).ask(batch, side.how) }
    turn.even? ? times[1].fdiv(times[0]) : times[0].fdiv(times[1])
  end
end

# How fast a process is depends on where its memory happens to lie, by some percent: what varies is what starts, so the
# processes are started anew many times, and a start counts once, by the median of its pairs.
#
# @param comparisons [Hash{Object => Array(Side, Side)}] the subjects and the floors, by their names
# @return [Hash] the intervals of the speeds of the subjects as shares of those of the floors, by the names
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

# The median, and between which it lies with 95 % confidence (order statistics).
def interval(ratios)
  sorted = ratios.sort
  low = (sorted.size / 2) - (0.98 * Math.sqrt(sorted.size)).ceil
  [Floor.median(sorted), sorted[low], sorted[-1 - low]]
end

def say(what, *ratio, note)
  puts "#{what.ljust(42)} #{ratio.map { |number| format('%.4f', number) }.join(' ')}  (#{note})"
end

def valgrind? = system("valgrind", "--version", out: File::NULL, err: File::NULL)

# Instructions a round, of which a server does two for each that is asked for. What comes once in a process, as booting
# and what the first start of a profile loads, is not counted.
def instructions(program, side, count:)
  Dir.mktmpdir do |directory|
    out = File.join(directory, "callgrind")
    server = Server.new(program, side.env, "valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no",
                        "--callgrind-out-file=#{out}")
    server.ask(count, side.how)
    %w[on off].each do |state|
      system("callgrind_control", "--instr=#{state}", server.pid.to_s, out: File::NULL, err: File::NULL,
                                                                       exception: true)
      server.ask(count, side.how) if state == "on"
    end
    server.stop
    Integer(File.foreach(out).grep(/^(?:summary|totals):/).last.split.last).fdiv(2 * count)
  end
end
