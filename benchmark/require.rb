# frozen_string_literal: true

# What `require "memscope"` costs a process in time and resident memory, against `require "optparse"` of Ruby's standard
# library, and what the first reading adds. The two take turns, each in fresh processes with RubyGems loaded and
# memscope on the load path, as if its gem were activated. Each number is a median of PAIRS=21.

require "rbconfig"
require_relative "floor/floor"

LOAD_PATH = $LOAD_PATH.grep(/memscope|\Alib|\A#{Regexp.escape(Dir.pwd)}/).map { |directory| "-I#{directory}" }
PAIRS = Integer(ENV.fetch("PAIRS", "21"))

# Warms up the methods that measure, so that their own memory is counted both before and after.
SCRIPT = <<~'RUBY'
  # In KiB: Rss, and its anonymous part; the rest is pages of files, which all processes that load them share.
  def memory = File.read("/proc/self/smaps_rollup").scan(/^(?:Rss|Anonymous): +(\d+)/).flatten.map(&:to_i)
  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
  3.times { memory; now }
  GC.start
  GC.disable
  before = memory
  start = now
  require ARGV.first
  loaded = now
  after = memory
  Memscope.snapshot if defined?(Memscope)
  surfaces = $LOADED_FEATURES.grep(/json|memscope\/(report|web|cli|tasks|railtie|prometheus)/)
  puts [loaded - start, *after.zip(before).map { |to, from| to - from }, memory.first - after.first,
        surfaces.size].join(" ")
RUBY

def measured(feature)
  command = [{ "RUBYOPT" => nil }, RbConfig.ruby, *LOAD_PATH, "-e", SCRIPT, feature]
  IO.popen(command, &:read).split.map(&:to_i)
end

def say(what, value, unit, goal)
  puts("#{what.ljust(22)} #{value.to_f.round(2).to_s.rjust(8)} #{unit}  (goal #{goal})")
end

pairs = Array.new(PAIRS) { [measured("memscope"), measured("optparse")] }
ours, peers = pairs.transpose.map { |runs| runs.transpose.map { |values| Floor.median(values) } }
time, memory = [0, 1].map { |index| Floor.median(pairs.map { |our, peer| our[index].fdiv(peer[index]) }) }

say('require "memscope"', time, "× the time of require \"optparse\" (#{(ours[0] / 1000.0).round(1)} ms)", "≤ 0.75")
say('require "memscope"', memory, "× the RSS of require \"optparse\" (#{ours[1].round} KiB, #{ours[2].round} of it " \
                                  "anonymous; #{peers[1].round} KiB)", "≤ 0.75")
say("the first snapshot", ours[3], "KiB of RSS more", "≤ 1024")
say("json and surfaces", ours[4], "files loaded", "0")
