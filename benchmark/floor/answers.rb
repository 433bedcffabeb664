# frozen_string_literal: true

# Reads requests from standard input, one a line: the number of rounds of a block to run. Prints for each request the
# CPU time of these rounds, in nanoseconds: nothing here waits, and other processes on the machine do not count.
#
# "20 profiled" runs 20 rounds in a malloc profile at the default rate, with the backend that PROFILE names; starting
# and stopping the profile does not count. "20 malloc" prints how many bytes 20 rounds allocate, as such a profile
# estimates. "20 start" starts a profile of objects, "20 watch" one that watches all allocations, and "20 stop" stops
# it; each then collects garbage and runs 20 rounds. "0 share" prints how many of a million allocations it has watched.
# With REPORT, memory_profiler reports on each batch. With COLLECT=N, a minor GC runs after every N rounds: otherwise
# GCs would run whenever the heap is full, and a thousand objects more or less (those of a loaded library) would shift
# them, which changes all times by some percent.

# Loops this small are some percent faster or slower if a thousand objects more or less were allocated before theirs. So
# each process first allocates a random number of objects: otherwise those of a loaded library would bias every result
# in the same way, while two processes without the library would not show that bias.
CAME_BEFORE = Array.new(rand(5000)) { "x" * rand(400) }.freeze

def rounds(&)
  every = ENV["COLLECT"]&.to_i
  return ->(count) { count.times(&) } unless every

  GC.disable
  lambda do |count|
    count.times do |round|
      yield
      GC.start(full_mark: false) if (round % every) == every - 1
    end
  end
end

def reported(work)
  require "memory_profiler"
  ->(count) { MemoryProfiler.report { work.call(count) } }
end

def profiled(&)
  Memscope.malloc_profile(backend: ENV.fetch("PROFILE").to_sym, &)
end

# As many bytes as the default rate, so that most of these blocks are sampled, although they are hardly touched.
HELD_BYTES = 1 << 19

def held(count) = Array.new(count) { String.new(capacity: HELD_BYTES) }

def cpu_time = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)

# Counts the second of two runs: in the first, a profile that has just begun touches its tables for the first time. A
# minor GC between them collects earlier garbage.
def nanoseconds(blocks)
  kept = held(blocks)
  yield
  GC.start(full_mark: false)
  start = cpu_time
  yield
  (cpu_time - start).tap { kept.each(&:clear) }
end

def allocated_bytes(&)
  profiled(&)
  Memscope::MallocProfile.snapshot.stacks.sum(&:allocated_bytes).round
end

# Ends with a GC, so that the heap is equally full after every switch.
def switch(profile, how)
  profile.stop if profile.running?
  profile.start if how == "start"
  profile.start(budget: 1) if how == "watch"
  GC.start
end

def result(work, count, how, held)
  case how
  when nil then nanoseconds(held) { work.call(count) }
  when "profiled"
    taken = nil
    profiled { taken = nanoseconds(held) { work.call(count) } }
    taken
  when "malloc" then allocated_bytes { work.call(count) }
  when "start", "watch", "stop"
    switch(Memscope::ObjectProfile, how)
    nanoseconds(held) { work.call(count) }
  when "share" then (1e6 * Memscope::ObjectProfile.snapshot.overhead.watched_share).round
  end
end

def answer(held: 0, &block)
  work = rounds(&block)
  work = reported(work) if ENV["REPORT"]
  work.call(50)
  GC.start
  puts "ready"
  $stdout.flush
  $stdin.each_line do |wish|
    count, how = wish.split
    puts result(work, Integer(count), how, held)
    $stdout.flush
  end
end
