# frozen_string_literal: true

# Memscope.rss against one pread of /proc/self/statm in C, and against the get_process_mem gem.

require "fiddle"
require_relative "floor/floor"
require "memscope"

pread = Floor.function("statm", "floor_statm", [Fiddle::TYPE_INT, Fiddle::TYPE_INT], Fiddle::TYPE_LONG_LONG)
statm = IO.for_fd(IO.sysopen("/proc/self/statm"))

# Four calls per iteration, so that the loop itself hardly counts.
rss = lambda do |count|
  Floor.time do
    turn = 0
    while turn < count
      Memscope.rss
      Memscope.rss
      Memscope.rss
      Memscope.rss
      turn += 4
    end
  end
end

result = Floor.compare(rss, ->(count) { pread.call(statm.fileno, count) }, count: 200)
Floor.say("Memscope.rss", result.ratio, "× one pread of statm in C", "≤ 1.5")
Floor.say("Memscope.rss", result.subject_ns / 1000, "µs", format("1.5 × %.2f µs", result.floor_ns / 1000))

begin
  require "get_process_mem"
rescue LoadError
  puts "get_process_mem is not installed: not compared"
  exit
end

memory = GetProcessMem.new
result = Floor.compare(->(count) { Floor.time { count.times { memory.bytes } } }, rss, count: 48)
Floor.say("Memscope.rss", result.ratio, "× as fast as get_process_mem", "≥ 10")
