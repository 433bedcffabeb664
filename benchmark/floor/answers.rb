# frozen_string_literal: true

# Reads numbers from standard input and prints for each the nanoseconds of CPU time that so many rounds of a block took:
# nothing here waits, and what else runs on the machine takes none of it.
#
# PROFILE names a backend: a malloc profile at the default rate runs meanwhile. REPORT asks for a report of
# memory_profiler of each batch. COLLECT is how many rounds there are to a minor collection: otherwise they come where
# the heap is full, which a thousand objects more or less (a library that was loaded) move by some percent of all work.

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

def cpu_time = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)

def answer(&)
  work = rounds(&)
  work = reported(work) if ENV["REPORT"]
  Memscope::MallocProfile.start(backend: ENV["PROFILE"].to_sym) if ENV["PROFILE"]
  work.call(50)
  GC.start
  puts "ready"
  $stdout.flush
  $stdin.each_line do |count|
    start = cpu_time
    work.call(Integer(count))
    puts cpu_time - start
    $stdout.flush
  end
end
