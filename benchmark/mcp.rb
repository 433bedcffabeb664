# frozen_string_literal: true

# How long each tool of `memscope mcp` holds up the process that it is about: the longest time that one of its threads,
# which sleeps for a millisecond again and again, wakes too late. The process has OBJECTS=1000000 objects and does
# nothing else. Each tool is asked ROUNDS=5 times, in turns with a bare fork of the process, for one that listens, and
# for one that has not loaded memscope, which is read in a copy. Medians; the goal is 25 ms, or the fork where that
# takes longer.
#
#   bundle exec ruby -Ilib benchmark/mcp.rb

require_relative "floor/floor"
require "json"
require "mcp"

ROUNDS = Integer(ENV.fetch("ROUNDS", "5"))
OBJECTS = Integer(ENV.fetch("OBJECTS", "1000000"))
MILLISECONDS = 25
LIBRARY = File.expand_path("../lib", __dir__)
PROGRAM = <<~'RUBY'
  Order = Struct.new(:number, :lines)
  ORDERS = Array.new(Integer(ENV.fetch("OBJECTS")) / 4) { |number| Order.new(number, ["line #{number}", "x" * 100]) }
  Memscope.listen if defined?(Memscope)
  GC.start
  require "fiddle"
  FORK = Floor.function("fork", "floor_fork", [], Fiddle::TYPE_LONG_LONG)
  fork_ms = -> { FORK.call / 1e6 }
  now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond) }
  longest = 0
  Thread.new do
    loop do
      start = now.call
      sleep 0.001
      longest = [longest, now.call - start - 1].max
    end
  end
  fork_ms.call
  $stdout.sync = true
  puts "ready"
  while (asked = gets)
    puts asked == "fork\n" ? fork_ms.call : longest
    longest = 0
  end
RUBY
# The tools, with their arguments besides the process. Without a listener, the others need `memscope attach`.
COPYING = { "doctor" => {}, "report" => {}, "heap" => {}, "ps" => {} }.freeze
LISTENING = { **COPYING, "watch" => {}, "profile" => { "seconds" => 1 }, "tags" => {} }.freeze
# Seconds until the next question: a process that was copied is not copied again for ten times as long as that took.
BETWEEN = 1

# A process with the program, and what its thread has waited.
class Target
  attr_reader :pid

  def initialize(*options)
    command = [RbConfig.ruby, "-W0", "-I#{LIBRARY}", *options, "-r#{File.join(__dir__, 'floor/floor')}", "-e", PROGRAM]
    @pipe = IO.popen({ "OBJECTS" => OBJECTS.to_s, "RUBYOPT" => nil }, command, "r+")
    @pid = @pipe.pid
    raise "the process ended" unless @pipe.gets == "ready\n"
  end

  def ask(what)
    @pipe.puts what
    @pipe.gets.to_f
  end

  def stop = Process.kill(:KILL, @pid)
end

def call(client, target, tool, arguments)
  about = tool == "ps" ? {} : { "pid" => target.pid }
  result = client.call_tool(name: tool, arguments: { **about, **arguments }).fetch("result")
  raise "#{tool}: #{result['content'].first['text']}" if result["isError"]
end

# Milliseconds of each tool, of a fork, and of no question.
def measure(client, target, tools)
  Hash.new { |hash, name| hash[name] = [] }.tap do |waits|
    ROUNDS.times do
      waits["a bare fork"] << target.ask("fork")
      target.ask("longest")
      sleep BETWEEN
      waits["no question"] << target.ask("longest")
      tools.each do |tool, arguments|
        call(client, target, tool, arguments)
        waits[tool] << target.ask("longest")
        sleep BETWEEN
        target.ask("longest")
      end
    end
  end
end

# Prints the medians, and returns how many tools miss the goal.
def report(situation, waits, tools)
  medians = waits.transform_values { |values| Floor.median(values) }
  goal = [MILLISECONDS, medians["a bare fork"]].max
  puts "#{situation}:"
  medians.each { |name, median| Floor.say("  #{name}", median, "ms", tools.key?(name) ? "≤ #{goal.round(1)}" : "none") }
  medians.slice(*tools.keys).count { |_name, median| median > goal }
end

server = [RbConfig.ruby, "-W0", "-I#{LIBRARY}", "-rbundler/setup", File.expand_path("../exe/memscope", __dir__), "mcp"]
transport = MCP::Client::Stdio.new(command: server.first, args: server.drop(1), read_timeout: 120)
client = MCP::Client.new(transport: transport)
client.connect(client_info: { name: "benchmark", version: "1" })
situations = { "a process that listens" => [LISTENING, "-rmemscope"], "one that has not loaded memscope" => [COPYING] }
missed = situations.sum do |situation, (tools, *options)|
  target = Target.new(*options)
  report(situation, measure(client, target, tools), tools)
ensure
  target&.stop
end
transport.close
exit missed.zero?
