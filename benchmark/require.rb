# frozen_string_literal: true

# What `require "memscope"` costs a process in time and resident memory, and what the first reading adds. Each number
# is the median over processes of their own.

require "rbconfig"
require_relative "floor/floor"

LOAD_PATH = $LOAD_PATH.grep(/memscope|\Alib|\A#{Regexp.escape(Dir.pwd)}/).map { |directory| "-I#{directory}" }

# The same pages are counted before and after, so the methods that count them are warmed up.
SCRIPT = <<~'RUBY'
  def rss = File.read("/proc/self/statm").split[1].to_i * 4096
  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
  3.times { rss; now }
  GC.start
  GC.disable
  rss_before = rss
  start = now
  require "memscope"
  loaded = now
  rss_loaded = rss
  Memscope.snapshot
  rss_read = rss
  surfaces = $LOADED_FEATURES.grep(/json|memscope\/(report|web|cli|tasks|railtie|prometheus)/)
  puts [loaded - start, rss_loaded - rss_before, rss_read - rss_loaded, surfaces.size].join(" ")
RUBY

def say(what, value, unit, goal)
  puts("#{what.ljust(22)} #{value.to_f.round(2).to_s.rjust(8)} #{unit}  (goal #{goal})")
end

runs = Array.new(21) do
  IO.popen([RbConfig.ruby, "--disable-gems", *LOAD_PATH, "-e", SCRIPT], &:read).split.map(&:to_i)
end
time, memory, reading, surfaces = runs.transpose.map { |values| Floor.median(values) }

say('require "memscope"', time / 1000.0, "ms", "≤ 5")
say('require "memscope"', memory / 1024.0, "KiB of RSS", "≤ 512")
say("the first snapshot", reading / 1024.0, "KiB of RSS more", "≤ 1024")
say("json and surfaces", surfaces, "files loaded", "0")
