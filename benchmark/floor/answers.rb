# frozen_string_literal: true

# Reads from standard input how many rounds of a block are wanted, one wish a line, and prints for each the nanoseconds
# of CPU time that they took: nothing here waits, and what else runs on the machine takes none of it.
#
# "20 profiled" runs them in a malloc profile at the default rate, of the backend that PROFILE names; what starting and
# stopping it takes is not counted. "20 malloc" prints the bytes that they allocate, by such a profile. REPORT asks for
# a report of memory_profiler of each batch. COLLECT is how many rounds there are to a minor collection: otherwise they
# come where the heap is full, which a thousand objects more or less (a library that was loaded) move by some percent of
# all work.

# Loops this small are faster or slower by some percent where a thousand objects more or less come before theirs. So a
# number of them that is drawn anew in each process does: else those of a library that is loaded would be all the cost
# that is found, always the same, while two processes without it lie alike.
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

def profiled
  Memscope::MallocProfile.start(backend: ENV.fetch("PROFILE").to_sym)
  yield
ensure
  Memscope::MallocProfile.stop
end

# Of the default rate, so that most of them are sampled: by what is held, not by what is touched.
HELD_BYTES = 1 << 19

def held(count) = Array.new(count) { String.new(capacity: HELD_BYTES) }

def cpu_time = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)

# Behind as many rounds that are not counted, in which a profile that has just begun touches its tables for the first
# time. What came before is collected before.
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

def result(work, count, how, held)
  case how
  when nil then nanoseconds(held) { work.call(count) }
  when "profiled" then profiled { nanoseconds(held) { work.call(count) } }
  when "malloc" then allocated_bytes { work.call(count) }
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
