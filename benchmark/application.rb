# frozen_string_literal: true

# What memscope costs a Rails application in which all of it is loaded, mounted and listening, and idle: instructions a
# request under callgrind, and time in pairs of processes that take turns, beside two that both have none of it.

require "open3"
require "rbconfig"
require "tmpdir"

REQUESTS = File.expand_path("floor/requests.rb", __dir__)
PAIRS = 40
BATCH = 100
COUNTED = 200

# A process of its own that is asked for batches.
class Server
  def initialize(env, *prefix)
    @in, @out, @process = Open3.popen2(env, *prefix, RbConfig.ruby, "-Ilib", REQUESTS)
    @out.gets
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

# The ratio of their speeds, pair by pair, and between which it lies with 95 % confidence (order statistics).
def compare(subject, floor)
  ratios = Array.new(PAIRS) do |turn|
    pair = turn.even? ? [subject, floor] : [floor, subject]
    times = pair.to_h { |server| [server, server.nanoseconds(BATCH)] }
    times[floor].fdiv(times[subject])
  end.sort
  spread = (0.98 * Math.sqrt(PAIRS)).ceil
  [median(ratios), ratios[(PAIRS / 2) - spread], ratios[(PAIRS / 2) + spread - 1]]
end

def say(what, *ratio, note)
  puts "#{what.ljust(42)} #{ratio.map { |number| format('%.4f', number) }.join(' ')}  (#{note})"
end

# Instructions a request; those of booting are not counted.
def instructions(env)
  Dir.mktmpdir do |directory|
    out = File.join(directory, "callgrind")
    server = Server.new(env, "valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no",
                        "--callgrind-out-file=#{out}")
    %w[on off].each do |state|
      system("callgrind_control", "--instr=#{state}", server.pid.to_s, out: File::NULL, err: File::NULL,
                                                                       exception: true)
      server.nanoseconds(COUNTED) if state == "on"
    end
    server.stop
    Integer(File.foreach(out).grep(/^(?:summary|totals):/).last.split.last).fdiv(COUNTED)
  end
end

plain, again, loaded = [{}, {}, { "MEMSCOPE" => "1" }].map { |env| Server.new(env) }
{ "speed with memscope ÷ without" => loaded,
  "speed without ÷ without (the same twice)" => again }.each do |what, server|
  ratio, least, most = compare(server, plain)
  say(what, ratio, "95 % confidence: #{least.round(4)} to #{most.round(4)}")
end

if system("valgrind", "--version", out: File::NULL, err: File::NULL)
  without, with = [{}, { "MEMSCOPE" => "1" }].map { |env| instructions(env) }
  say("instructions without ÷ with memscope", without / with, "goal ≥ 0.995; #{without.round} a request without")
else
  puts "valgrind is not installed: instructions are not counted"
end
