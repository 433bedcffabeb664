# frozen_string_literal: true

# `forks.rb MEBIBYTES`: holds that much memory. For each line that it reads, forks a child that ends at once, and prints
# for how many milliseconds this stopped its only thread.

KEPT = Array.new(Integer(ARGV.first) * 16) { |number| (number % 256).chr * (1 << 16) }
GC.start
$stdout.sync = true
puts "ready"

while $stdin.gets
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  child = fork { exit! }
  puts (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began) * 1000
  Process.wait(child)
end
