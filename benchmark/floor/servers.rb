# frozen_string_literal: true

require "open3"
require "rbconfig"
require "tmpdir"

# A process of its own that is asked for batches: a program of this folder that answers (answers.rb).
class Server
  def initialize(program, env, *prefix)
    @in, @out, @process = Open3.popen2(env, *prefix, RbConfig.ruby, "-Ilib", *program)
    raise "#{program.join(' ')} did not start" unless @out.gets
  end

  def pid = @process.pid

  def nanoseconds(count)
    @in.puts count
    @in.flush
    Integer(@out.gets)
  end

  def stop
    @in.close
    @process.value
  end
end

def median(values) = values.sort[values.size / 2]

# The ratios of their speeds, pair by pair.
def ratios(subject, floor, batch:, pairs:)
  Array.new(pairs) do |turn|
    pair = turn.even? ? [subject, floor] : [floor, subject]
    times = pair.to_h { |server| [server, server.nanoseconds(batch)] }
    times[floor].fdiv(times[subject])
  end
end

# The median, and between which it lies with 95 % confidence (order statistics).
def interval(ratios)
  sorted = ratios.sort
  middle = sorted.size / 2
  spread = (0.98 * Math.sqrt(sorted.size)).ceil
  [median(sorted), sorted[middle - spread], sorted[middle + spread - 1]]
end

def say(what, *ratio, note)
  puts "#{what.ljust(42)} #{ratio.map { |number| format('%.4f', number) }.join(' ')}  (#{note})"
end

def valgrind? = system("valgrind", "--version", out: File::NULL, err: File::NULL)

# Instructions a round; those of booting are not counted.
def instructions(program, env, count:)
  Dir.mktmpdir do |directory|
    out = File.join(directory, "callgrind")
    server = Server.new(program, env, "valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no",
                        "--callgrind-out-file=#{out}")
    %w[on off].each do |state|
      system("callgrind_control", "--instr=#{state}", server.pid.to_s, out: File::NULL, err: File::NULL,
                                                                       exception: true)
      server.nanoseconds(count) if state == "on"
    end
    server.stop
    Integer(File.foreach(out).grep(/^(?:summary|totals):/).last.split.last).fdiv(count)
  end
end
