# frozen_string_literal: true

# What a malloc profile costs loops of strings, JSON and hashes, and a Rails application's requests: the speed with a
# profile as a share of the speed without. One loop runs while as many samples are live as in a process of 2 GB.
#
# - CPU time of processes with and without the gem, which take turns; as controls, two processes that are the same, and
#   one that has loaded optparse instead.
# - CPU time of one process in which a profile is started and stopped by turns; as a control, without any profile.
# - Instructions under callgrind, of processes with the gem, idle or profiled, and of bare ones.
# - memory_profiler and mwrap on the same loops; and the memory that a live sample takes.
#
# STARTS, LOOPS ("strings,requests") and PARTS ("idle,memory") say how much of this is measured.

require_relative "floor/counted_server"
require "memscope"

# How often processes are started; less often for requests, since an application takes seconds to start.
STARTS = Hash.new(Integer(ENV.fetch("STARTS", "60")))
STARTS["requests"] = [STARTS["requests"], FEWEST_STARTS].min
PAIRS = 20 # for each start
BATCH = 20 # rounds, with two minor collections
COUNTED_ROUNDS = 200
RATED = 2000 # rounds
FLOOR = File.expand_path("floor", __dir__)

# Without RubyGems, JSON is the version that comes with this Ruby.
ALLOCATIONS = ["--disable-gems", "#{FLOOR}/allocations.rb"].freeze
ALL = {
  "strings" => [*ALLOCATIONS, "strings"],
  "JSON" => [*ALLOCATIONS, "JSON"],
  "hashes" => [*ALLOCATIONS, "hashes"],
  "requests" => ["#{FLOOR}/requests.rb"],
  "strings beside 2 GB" => [*ALLOCATIONS, "strings", "4000"],
  "long strings" => [*ALLOCATIONS, "long strings"]
}.freeze
LOOPS = ALL.slice(*ENV.fetch("LOOPS", ALL.keys.join(",")).split(",")).freeze

# This loop allocates several times as much through malloc as the others: its cost is printed, but has no goal.
WITHOUT_GOAL = ["long strings"].freeze

# All processes collect garbage in the same rounds.
BARE = { "COLLECT" => "10" }.freeze
AGAIN = { **BARE, "AGAIN" => "1" }.freeze
INSTEAD = { **BARE, "INSTEAD" => "optparse" }.freeze
LOADED = { **BARE, "MEMSCOPE" => "1", "PROFILE" => "imports" }.freeze
PRELOADED = { **BARE, "LD_PRELOAD" => "libjemalloc.so.2" }.freeze
JEMALLOC = { **PRELOADED, "MEMSCOPE" => "1", "PROFILE" => "jemalloc",
                          "MALLOC_CONF" => Memscope::MallocProfile::CONF }.freeze

# What is compared with what. A goal is lowered by as much as `same` differs from 1. `same` compares two sides that
# should be equal: two identical processes or, if a profile is started and stopped in one process, that process without
# a profile. PLACEBO loads a library that does nothing and has as many objects as the idle gem: in a process of 13 MB
# these alone cost time, through cache misses, not instructions.
Subject = Struct.new(:name, :side, :floor, :goal, :same)
TWO = Subject.new("two processes that are the same", Side.new(AGAIN), Side.new(BARE))
ONE = Subject.new("one process, without twice", Side.new(LOADED), Side.new(LOADED))
ONE_OF_JEMALLOC = Subject.new("one process of jemalloc's, without twice", Side.new(JEMALLOC), Side.new(JEMALLOC))
PLACEBO = Subject.new("optparse loaded instead", Side.new(INSTEAD), Side.new(BARE))
IDLE = [
  TWO, PLACEBO, Subject.new("loaded, idle", Side.new(LOADED), Side.new(BARE), 0.995, TWO),
  Subject.new("jemalloc with prof:true, loaded, idle", Side.new(JEMALLOC), Side.new(PRELOADED))
].freeze
PROFILED = [
  ONE, Subject.new("backend imports, glibc", Side.new(LOADED, "profiled"), Side.new(LOADED), 0.95, ONE),
  ONE_OF_JEMALLOC,
  Subject.new("backend jemalloc, of one with prof:true", Side.new(JEMALLOC, "profiled"), Side.new(JEMALLOC), 0.98,
              ONE_OF_JEMALLOC)
].freeze
COUNTED = [
  Subject.new("loaded, idle", Side.new(LOADED), Side.new(BARE), 0.995),
  Subject.new("backend imports, glibc", Side.new(LOADED, "profiled"), Side.new(BARE), 0.95),
  Subject.new("backend jemalloc", Side.new(JEMALLOC, "profiled"), Side.new(PRELOADED), 0.98)
].freeze

# ---- time and instructions -------------------------------------------------------------------------------------------

def verdict(name, value, goal)
  return "no goal" if WITHOUT_GOAL.include?(name)

  "goal ≥ #{goal.round(4)}: #{value >= goal ? 'met' : 'missed'}"
end

def time(name, program, subjects)
  puts "  #{STARTS[name]} starts of #{PAIRS} pairs each"
  found = compare(program, subjects.to_h { |subject| [subject, [subject.side, subject.floor]] },
                  starts: STARTS[name], batch: BATCH, pairs: PAIRS)
  found.each do |subject, (ratio, least, most)|
    if subject.goal
      _, from, to = found[subject.same]
      judged = "; the lower one: #{verdict(name, least, subject.goal - [1 - from, to - 1].max)}"
    end
    say("  #{subject.name}", ratio, "95 %: #{least.round(4)} to #{most.round(4)}#{judged}")
  end
end

def count(name, program)
  counts = Hash.new { |known, side| known[side] = instructions(program, side, count: COUNTED_ROUNDS) }
  COUNTED.each do |subject|
    without = counts[subject.floor]
    ratio = without / counts[subject.side]
    say("  #{subject.name}", ratio, "#{verdict(name, ratio, subject.goal)}; #{without.round} a round without")
  end
end

# Bytes allocated through malloc per second of CPU time, as a profile estimates them.
def malloc_rate(program)
  server = Server.new(program, LOADED)
  server.ask(RATED, "malloc") / (server.ask(RATED) / 1e9)
ensure
  server.stop
end

# ---- other profilers, on the same loop -------------------------------------------------------------------------------

# Installs mwrap for this run only, since it is under the GPL. Returns the library to preload; nil if that failed.
def install_mwrap(directory)
  command = ["gem", "install", "--silent", "--no-document", "--install-dir", directory, "mwrap"]
  _, status = Open3.capture2e({ "RUBYOPT" => nil }, *command)
  Dir["#{directory}/extensions/**/mwrap.so"].first if status.success?
end

def where(gem) = Gem::Specification.find_by_name(gem).full_require_paths.join(":")

def compare_others(program, others)
  sides = others.transform_values { |env| [Side.new({ **BARE, **env }), Side.new(BARE)] }
  compare(program, sides, starts: FEWEST_STARTS, batch: BATCH, pairs: PAIRS).each do |name, (ratio, least, most)|
    say("  #{name}", ratio, "95 %: #{least.round(4)} to #{most.round(4)}")
  end
end

# ---- memory ----------------------------------------------------------------------------------------------------------

# How many more resident bytes a process with a profile grows by than one without, per sample that is live at the end;
# and the number of these samples.
def bytes_a_sample(backend, env, without, stacks)
  grown = [without, { **env, "PROFILE" => backend }].map do |variables|
    Array.new(3) do
      output, status = Open3.capture2(variables, RbConfig.ruby, "-Ilib", "#{FLOOR}/samples.rb", stacks)
      raise "samples.rb failed" unless status.success?

      output.split.map(&:to_i)
    end
  end
  samples = Floor.median(grown.last.map(&:last))
  [(Floor.median(grown.last.map(&:first)) - Floor.median(grown.first.map(&:first))).fdiv(samples), samples]
end

# ---- all of it ------------------------------------------------------------------------------------------------------

def of_each_loop(title)
  puts title
  LOOPS.each do |name, program|
    puts " #{name}"
    yield name, program
  end
end

PARTS = {
  "idle" => lambda do
    of_each_loop("CPU time without ÷ with the gem") { |name, program| time(name, program, IDLE) }
  end,

  "profiled" => lambda do
    rate = "2^#{Memscope::MallocProfile::RATE.bit_length - 1}"
    of_each_loop("CPU time without ÷ with a malloc profile at #{rate}") do |name, program|
      puts "  #{(malloc_rate(program) / 1e6).round} MB of malloc a second"
      time(name, program, PROFILED)
    end
  end,

  "instructions" => lambda do
    next puts("valgrind is not installed: instructions are not counted") unless valgrind?

    of_each_loop("instructions without ÷ with") { |name, program| count(name, program) }
  end,

  "others" => lambda do
    Dir.mktmpdir do |directory|
      mwrap = install_mwrap(directory)
      others = { "memory_profiler and its report" => { "REPORT" => "1", "RUBYLIB" => where("memory_profiler") },
                 "mwrap" => mwrap && { "LD_PRELOAD" => mwrap } }.compact
      puts "mwrap could not be installed (it needs the headers of liburcu): not compared" unless mwrap
      of_each_loop("CPU time without ÷ with others: #{FEWEST_STARTS} starts of #{PAIRS} pairs each") do |_, program|
        compare_others(program, others)
      end
    end
  end,

  "memory" => lambda do
    puts "resident memory for each live sample of a small block"
    [["imports", {}, {}], ["jemalloc", JEMALLOC, PRELOADED]].product(%w[one each]).each do |way, stacks|
      bytes, samples = bytes_a_sample(*way, stacks)
      puts format("  %-41<what>s %<bytes>6d bytes (of %<samples>d, no goal)",
                  what: "backend #{way.first}, #{stacks == 'one' ? 'all of one stack' : 'each its own stack'}",
                  bytes: bytes, samples: samples)
    end
  end
}.freeze

ENV.fetch("PARTS", PARTS.keys.join(",")).split(",").each { |part| PARTS.fetch(part).call }
