# frozen_string_literal: true

# What a profile of objects costs: the speed with it as a share of the speed without, in CPU time.
#
# - loops: one that only allocates, one that works on strings and hashes as an application does, and one that allocates
#   nothing; by turns with and without a profile, in one process; as a control, without one twice.
# - asleep: the CPU time of a process that sleeps, with and without a profile.
# - programs: requests of a Rails application, and loops that work on strings, JSON and hashes. A slowdown of 1 % cannot
#   be seen where the machine's speed varies by 10 %. So this measures how much a profile that watches all allocations
#   slows the programs down, in CPU time and in instructions (under callgrind: a virtual machine often has no counter of
#   its own). The default budget costs that, times the share of allocations that it watches; the share is measured as
#   well. How much longer a GC takes with many samples is in "tables".
# - others: ObjectSpace.trace_object_allocations, memory_profiler, vernier's and Datadog's allocation profilers on the
#   loop that only allocates, each in a process of its own, before and while it runs. The last two are installed into
#   PEERS=tmp/peers; one that cannot be installed is "not run".
# - tables: with tens of thousands of samples of live objects, of one stack and of 8,000, how much longer a minor and a
#   major GC take, and the GC in which all these objects die; how long readings take; and the memory of the tables.
#
# PARTS ("loops,tables"), ROUNDS, ALLOCATIONS (of a round), TURNS, REQUESTS (of a turn) and WARM (requests until the
# share is measured) say how much of this is measured.

require_relative "floor/counted_server"
require "memscope"

ROUNDS = Integer(ENV.fetch("ROUNDS", "5"))
ALLOCATIONS = Integer(ENV.fetch("ALLOCATIONS", "10000000"))
PROFILE = Memscope::ObjectProfile
DEPTH = 30 # calls around each loop

def cpu_seconds = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

def deep(calls, &) = calls.zero? ? yield : deep(calls - 1, &)

def timed(&)
  GC.start
  start = cpu_seconds
  deep(DEPTH, &)
  cpu_seconds - start
end

LOOPS = {
  "allocates only" => [0.95, -> { (ALLOCATIONS / 2).times { |number| ["x#{number}"] } }],
  "strings and hashes" => [0.98, lambda do
    (ALLOCATIONS / 20).times do |number|
      pairs = { "id" => number.to_s, "name" => "order", "price" => "100" }
      pairs.map { |key, value| "#{key}=#{value}" }.join("&").split("&").to_h { |pair| pair.split("=") }
    end
  end],
  "allocates nothing" => [0.998, -> { (ALLOCATIONS * 4).times { |number| number + 1 } }]
}.freeze

def median(numbers) = numbers.sort[numbers.size / 2]

# The median, and the range of the half in the middle.
def quartiles(numbers)
  sorted = numbers.sort
  format("%.3f (%.3f to %.3f)", median(numbers), sorted[sorted.size / 4], sorted[-1 - (sorted.size / 4)])
end

def with_profile(&)
  PROFILE.start
  seconds = timed(&)
  [seconds, PROFILE.stop.overhead]
end

# A round with a profile is compared with the mean of those before and after it: the machine's speed drifts.
def measure_loops
  LOOPS.each do |name, (goal, body)|
    body.call
    ratios, controls, overheads = Array.new(ROUNDS) do
      before = timed(&body)
      with, overhead = with_profile(&body)
      after = timed(&body)
      [(before + after) / 2 / with, before / after, overhead]
    end.transpose
    last = overheads.last
    puts format("%-20s %s of the speed without a profile (goal %.3f; control %s); it says that it took %.1f %% " \
                "and watched %.1f %% of the allocations", name, quartiles(ratios), goal, quartiles(controls),
                100 * last.cpu_share, 100 * last.watched_share.to_f)
  end
end

ASLEEP = 3 # seconds

def asleep
  start = cpu_seconds
  sleep ASLEEP
  1000 * (cpu_seconds - start) / ASLEEP
end

def measure_asleep
  without = asleep
  PROFILE.start
  puts format("%-20s %.3f ms of CPU time a second with a profile, %.3f without", "asleep", asleep, without)
  PROFILE.stop
end

# ---- programs: requests of a Rails application, and loops -----------------------------------------------------------

FLOOR = File.expand_path("floor", __dir__)
# Each: the program; the goal; how many rounds take as long as one request.
PROGRAMS = {
  "Rails requests" => [["requests.rb"], 0.98, 1],
  **%w[objects strings JSON hashes].to_h { |name| ["loop: #{name}", [["allocations.rb", name], 0.95, 5]] }
}.transform_values { |(file, *rest), *others| [[File.join(FLOOR, file), *rest], *others] }.freeze
LOADED = { "MEMSCOPE" => "1", "COLLECT" => "10" }.freeze
TURNS = Integer(ENV.fetch("TURNS", "15"))
REQUESTS = Integer(ENV.fetch("REQUESTS", "60"))
# Requests until the share of the allocations that a profile watches has settled.
WARM = Integer(ENV.fetch("WARM", "3000"))

# How many times as much (CPU time or instructions) rounds take while all allocations are watched. In one process by
# turns, since two processes differ by some percent, for example by their hash seeds. Each turn is compared with the
# mean of those before and after it.
def watching(kind, program, rounds, measure, turns)
  server = kind.new(program, LOADED)
  turn = lambda do |how|
    server.ask(1, how)
    server.public_send(measure, rounds)
  end
  without = [turn["stop"]]
  found = Array.new(turns) do
    with = turn["watch"]
    without << turn["stop"]
    with / (without.last(2).sum / 2.0)
  end
  found.tap { server.stop }
end

# The share of the allocations that a profile watches at its default budget, in the second of two halves: in the first
# half it watches more, until it has learned what that costs. GCs run when Ruby runs them: with forced GCs, it learns
# less.
def watched_share(program, rounds)
  server = Server.new(program, LOADED.except("COLLECT"))
  server.ask(rounds, "start")
  first = server.ask(0, "share")
  server.ask(rounds)
  (((2 * server.ask(0, "share")) - first) / 1e6).tap { server.stop }
end

# The speed with a profile, as a share of that without one.
def say_speed(name, goal, times, watched)
  speeds = times.map { |ratio| 1 / (1 + ((ratio - 1) * watched)) }
  puts "#{name.ljust(29)} #{quartiles(speeds)} (goal #{goal}; where all are watched, " \
       "1 / #{median(times).round(2)})"
end

def measure_programs
  PROGRAMS.each do |name, (program, goal, times)|
    watched = watched_share(program, WARM * times)
    puts format("%s: %.1f %% of the allocations are watched", name, 100 * watched)
    say_speed("  CPU time", goal, watching(Server, program, REQUESTS * times, :ask, TURNS), watched)
    next puts("  instructions: not counted (valgrind is not installed)") unless valgrind?

    say_speed("  instructions", goal, watching(CountedServer, program, REQUESTS * times, :count, 3), watched)
  end
end

# ---- other profilers, on the loop that only allocates ----------------------------------------------------------------

PEERS_HOME = File.expand_path(ENV.fetch("PEERS", "tmp/peers"))
# Each: the gems to install; how it starts; how it ends.
PEERS = {
  "ObjectSpace.trace_object_allocations" => [[], "require 'objspace'; ObjectSpace.trace_object_allocations_start",
                                             "ObjectSpace.trace_object_allocations_stop"],
  "memory_profiler" => [%w[memory_profiler], "require 'memory_profiler'; MemoryProfiler.start",
                        "MemoryProfiler.stop"],
  "vernier, each 1000th allocation" => [
    %w[vernier:~>1.0], "require 'vernier'; Vernier.start_profile(allocation_interval: 1000)", "Vernier.stop_profile"
  ],
  "datadog, allocations" => [%w[datadog], <<~RUBY, "Datadog.shutdown!"],
    require "datadog"
    Datadog.configure do |c|
      c.profiling.enabled = c.profiling.allocation_enabled = true
      c.tracing.enabled = c.telemetry.enabled = c.remote.enabled = false
      c.logger.instance = Logger.new(nil)
    end
    sleep 1
  RUBY
  "memscope" => [[], "require 'memscope'; Memscope::ObjectProfile.start",
                 "Memscope::ObjectProfile.stop"]
}.freeze

PEER_PROGRAM = <<~RUBY
  def cpu_seconds = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
  def loops = (GC.start; start = cpu_seconds; %<allocations>d.times { |number| ["x\#{number}"] }; cpu_seconds - start)
  loops
  before = Array.new(%<rounds>d) { loops }.min
  %<start>s
  during = Array.new(%<rounds>d) { loops }.min
  %<stop>s
  puts before / during
RUBY

# Without this process's Bundler.
PEER_ENVIRONMENT = { "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil, "GEM_HOME" => PEERS_HOME,
                     "GEM_PATH" => PEERS_HOME }.freeze

def installed?(gem)
  name, version = gem.split(":")
  wanted = version ? [name, "--version", version] : [name]
  [%w[list --exact --installed], %w[install --silent --no-document]].any? do |command|
    system(PEER_ENVIRONMENT, "gem", *command, *wanted, %i[out err] => File::NULL)
  end
end

def peer_ratio(start, stop)
  program = format(PEER_PROGRAM, allocations: ALLOCATIONS / 2, rounds: [ROUNDS, 3].min, start: start, stop: stop)
  library = File.expand_path("../lib", __dir__)
  out, status = Open3.capture2(PEER_ENVIRONMENT, *PINNED, RbConfig.ruby, "-W0", "-I#{library}", "-e", program,
                               err: File::NULL)
  Float(out.lines.last) if status.success?
end

def measure_others
  PEERS.each do |name, (gems, start, stop)|
    ratio = peer_ratio(start, stop) if gems.all? { |gem| installed?(gem) }
    puts format("%-36s %s", name, ratio ? "#{ratio.round(3)} of the speed without it" : "not run (not to be had)")
  end
end

# ---- tables ----------------------------------------------------------------------------------------------------------

LIVE = 3_100_000 # one in fifty is sampled: just below the number at which half of the samples are dropped
BRANCHES = 20

# Calls through three levels of methods: a stack for each number below BRANCHES³.
LEVELS = { nil => "outer", "outer" => "middle", "middle" => "inner" }.freeze
LEVELS.each_value do |level|
  BRANCHES.times do |at|
    Object.class_eval(<<~RUBY, __FILE__, __LINE__ + 1)
      def #{level}_#{at}(number, &block) = branch("#{level}", number, &block) # def outer_0(number, &block) = …
    RUBY
  end
end

def branch(level, number, &)
  below = LEVELS[level]
  below ? send(:"#{below}_#{number % BRANCHES}", number / BRANCHES, &) : yield
end

STACKS = { "1 stack" => 1, "8,000 stacks" => BRANCHES**3 }.freeze

def held_by(stacks)
  held = Array.new(LIVE)
  index = -1
  stacks.times { |number| branch(nil, number) { (LIVE / stacks).times { held[index += 1] = Object.new } } }
  held
end

def gc_milliseconds = Memscope.const_get(:Native).object_profile(false).dig(:overhead, :gc_nanoseconds) / 1e6

def longer(**options)
  before = gc_milliseconds
  GC.start(**options)
  gc_milliseconds - before
end

def cpu_milliseconds
  start = cpu_seconds
  yield
  1000 * (cpu_seconds - start)
end

def spread(numbers) = "#{median(numbers).round(3)} ms (worst #{numbers.max.round(3)})"

def measure_collections(name, goal, **options)
  times = Array.new(TABLE_ROUNDS) { longer(**options) }
  puts "  a #{name} GC takes #{spread(times)} longer (goal #{goal})"
end

TABLE_ROUNDS = 15

def measure_readings(profile)
  { "snapshot" => -> { PROFILE.snapshot },
    "by(:line)" => -> { profile.by(:line) },
    "lines that grow" => -> { PROFILE::Holders.growing(PROFILE.snapshot) } }.each do |name, read|
    puts "  #{name.ljust(17)} takes #{spread(Array.new(TABLE_ROUNDS / 3) { cpu_milliseconds(&read) })} of CPU time"
  end
end

def measure_tables
  STACKS.each do |name, stacks|
    PROFILE.start(budget: 1)
    held = held_by(stacks)
    3.times { GC.start }
    profile = PROFILE.snapshot
    puts "#{name}: #{profile.samples} samples of #{held.size} live objects, " \
         "tables #{(profile.overhead.table_bytes / 1e6).round(1)} MB (goal 8)"
    measure_readings(profile)
    GC.disable
    measure_collections("major", 2)
    measure_collections("minor", 0.2, full_mark: false)
    held.clear
    puts format("  the GC in which all die takes %.3f ms longer", longer)
    GC.enable
    PROFILE.stop
  end
end

PARTS = { "loops" => :measure_loops, "asleep" => :measure_asleep, "programs" => :measure_programs,
          "others" => :measure_others, "tables" => :measure_tables }.freeze

puts RUBY_DESCRIPTION
ENV.fetch("PARTS", PARTS.keys.join(",")).split(",").each { |part| send(PARTS.fetch(part)) }
