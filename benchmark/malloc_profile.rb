# frozen_string_literal: true

# What a malloc profile costs loops of strings, JSON and hashes, and a Rails application's requests: the speed with one
# as a share of that without. In CPU time, in pairs of processes that take turns, beside pairs that are the same; in
# instructions, under callgrind; then memory_profiler and mwrap on the same loops, and the memory that a live sample
# takes. PAIRS, LOOPS ("strings,requests") and PARTS ("time,memory") say how much of it is measured.

require_relative "floor/servers"
require "etc"
require "memscope"

# Processes are started anew: how fast one is depends on where its memory happens to lie.
STARTS = 5
PAIRS = Integer(ENV.fetch("PAIRS", "100")) / STARTS
FLOOR = File.expand_path("floor", __dir__)

# The program, how many rounds are a batch, and how many are counted.
Loop = Struct.new(:program, :batch, :counted)
LOOPS = {
  "strings" => Loop.new(["#{FLOOR}/allocations.rb", "strings"], 20, 200),
  "JSON" => Loop.new(["#{FLOOR}/allocations.rb", "JSON"], 40, 200),
  "hashes" => Loop.new(["#{FLOOR}/allocations.rb", "hashes"], 40, 200),
  "requests" => Loop.new(["#{FLOOR}/requests.rb"], 20, 200)
}.slice(*ENV.fetch("LOOPS", "strings,JSON,hashes,requests").split(",")).freeze

LOADED = { "MEMSCOPE" => "1" }.freeze
AGAIN = { "AGAIN" => "1" }.freeze
JEMALLOC = { "LD_PRELOAD" => "libjemalloc.so.2" }.freeze
PROFILING = { **JEMALLOC, "MALLOC_CONF" => Memscope::MallocProfile::CONF }.freeze

# The environment with and without what is measured.
Subject = Struct.new(:name, :env, :without, :goal)
SUBJECTS = [
  Subject.new("without twice, glibc", AGAIN, {}, nil),
  Subject.new("loaded, idle", LOADED, {}, 0.995),
  Subject.new("backend imports, glibc", { **LOADED, "PROFILE" => "imports" }, {}, 0.95),
  Subject.new("without twice, jemalloc", { **AGAIN, **JEMALLOC }, JEMALLOC, nil),
  Subject.new("backend jemalloc", { **LOADED, "PROFILE" => "jemalloc", **PROFILING }, JEMALLOC, 0.98)
].freeze
ENVIRONMENTS = SUBJECTS.flat_map { |subject| [subject.env, subject.without] }.uniq.freeze

# ---- time and instructions -------------------------------------------------------------------------------------------

# All collect at the same rounds.
def settings(env) = { "COLLECT" => "20", **env }

def verdict(value, goal) = "goal ≥ #{goal.round(4)}: #{value >= goal ? 'met' : 'missed'}"

# The speeds of other environments as shares of that of the second in each pair: all ratios, by what `pairs` calls them.
def take_turns(loop, pairs, count)
  found = Hash.new { |list, name| list[name] = [] }
  STARTS.times do
    servers = pairs.values.flatten.uniq.to_h { |env| [env, Server.new(loop.program, settings(env))] }
    pairs.each do |name, envs|
      found[name].concat(ratios(*servers.values_at(*envs), batch: loop.batch, pairs: count))
    end
    servers.each_value(&:stop)
  end
  found.transform_values { |list| interval(list) }
end

def time(loop)
  found = take_turns(loop, SUBJECTS.to_h { |subject| [subject, [subject.env, subject.without]] }, PAIRS)
  spreads = found.select { |subject,| subject.goal.nil? }.to_h do |subject, (_, least, most)|
    [subject.without, [1 - least, most - 1].max]
  end
  found.each do |subject, (ratio, least, most)|
    judged = subject.goal && "; the lower one: #{verdict(least, subject.goal - spreads[subject.without])}"
    say("  #{subject.name}", ratio, "95 %: #{least.round(4)} to #{most.round(4)}#{judged}")
  end
end

def count(loop)
  counts = Hash.new { |known, env| known[env] = instructions(loop.program, settings(env), count: loop.counted) }
  SUBJECTS.select(&:goal).each do |subject|
    without = counts[subject.without]
    ratio = without / counts[subject.env]
    say("  #{subject.name}", ratio, "#{verdict(ratio, subject.goal)}; #{without.round} a round without")
  end
end

# ---- other profilers, on the same loop -------------------------------------------------------------------------------

# mwrap is under the GPL: installed for this run alone, where it can be. The library to preload, or nil.
def install_mwrap(directory)
  command = ["gem", "install", "--silent", "--no-document", "--install-dir", directory, "mwrap"]
  _, status = Open3.capture2e({ "RUBYOPT" => nil }, *command)
  Dir["#{directory}/extensions/**/mwrap.so"].first if status.success?
end

def compare_others(loop, others)
  pairs = others.transform_values { |env| [env, {}] }
  take_turns(loop, pairs, PAIRS / 5).each do |name, (ratio, least, most)|
    say("  #{name}", ratio, "95 %: #{least.round(4)} to #{most.round(4)}")
  end
end

# ---- memory ----------------------------------------------------------------------------------------------------------

# Resident bytes by which a process with a profile grows more than one without, for each sample that lives in the end.
def bytes_a_sample(backend, env, without, stacks)
  grown = [without, { **env, "PROFILE" => backend }].map do |variables|
    Array.new(3) do
      output, status = Open3.capture2(variables, RbConfig.ruby, "-Ilib", "#{FLOOR}/samples.rb", stacks)
      raise "samples.rb failed" unless status.success?

      output.split.map(&:to_i)
    end
  end
  samples = median(grown.last.map(&:last))
  [(median(grown.last.map(&:first)) - median(grown.first.map(&:first))).fdiv(samples), samples]
end

# ---- all of it ------------------------------------------------------------------------------------------------------

def each_loop
  LOOPS.each do |name, loop|
    puts " #{name}"
    yield loop
  end
end

PARTS = {
  "time" => lambda do
    rate = "2^#{Memscope::MallocProfile::RATE.bit_length - 1}"
    puts "CPU time without ÷ with a malloc profile at #{rate}: #{PAIRS * STARTS} pairs, #{Etc.nprocessors} processors"
    each_loop { |loop| time(loop) }
  end,

  "instructions" => lambda do
    next puts("valgrind is not installed: instructions are not counted") unless valgrind?

    puts "instructions without ÷ with"
    each_loop { |loop| count(loop) }
  end,

  "others" => lambda do
    Dir.mktmpdir do |directory|
      mwrap = install_mwrap(directory)
      others = { "memory_profiler and its report" => { "REPORT" => "1" },
                 "mwrap" => mwrap && { "LD_PRELOAD" => mwrap } }.compact
      puts "CPU time without ÷ with others: #{PAIRS / 5 * STARTS} pairs"
      puts " mwrap could not be installed (it needs the headers of liburcu): not compared" unless mwrap
      each_loop { |loop| compare_others(loop, others) }
    end
  end,

  "memory" => lambda do
    puts "resident memory for each live sample of a small block"
    [["imports", {}, {}], ["jemalloc", PROFILING, JEMALLOC]].product(%w[one each]).each do |way, stacks|
      bytes, samples = bytes_a_sample(*way, stacks)
      puts format("  %-41<what>s %<bytes>6d bytes (of %<samples>d, no goal)",
                  what: "backend #{way.first}, #{stacks == 'one' ? 'all of one stack' : 'each its own stack'}",
                  bytes: bytes, samples: samples)
    end
  end
}.freeze

ENV.fetch("PARTS", PARTS.keys.join(",")).split(",").each { |part| PARTS.fetch(part).call }
