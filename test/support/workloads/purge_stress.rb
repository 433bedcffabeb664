# frozen_string_literal: true

# Levers for ENV["SECONDS"], while eight threads allocate without the GVL: one lever every 100 ms and, in two other
# threads, purges with their ledgers, and tunings. Prints how often each lever was pulled, how many purges gave a
# result, how many were refused because another was in progress, and the errors. On a busy machine, it continues
# until five levers a second were pulled, each lever at least once, and a purge has given a result.

require "json"
require "memscope_test"

module PurgeStress
  SECONDS = Integer(ENV.fetch("SECONDS"))
  FINISH = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS
  INTERVAL = 0.1
  NATIVE = Memscope.const_get(:Native)
  LEVERS = Memscope::Purge.missing.select { |_lever, missing| missing.nil? }.keys
  PULLS = LEVERS.to_h { |lever| [lever, 0] }
  RESULTS = Queue.new
  FAULTS = Queue.new
  JEMALLOC = Memscope.allocator.name == :jemalloc

  module_function

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def time_left? = now < FINISH || !enough?

  def enough? = PULLS.values.min.positive? && PULLS.values.sum >= SECONDS * 5 && !RESULTS.empty?

  def guarded
    yield
  rescue StandardError => e
    FAULTS << "#{e.class}: #{e.message}"
  end

  def pull(lever)
    return lever == :gc ? GC.start : GC.compact if Memscope::Purge::HOLDING_GVL.include?(lever)

    _, failure = NATIVE.run_lever(lever)
    FAULTS << "#{lever}: #{failure}" if failure
  end

  # If a lever is late, the next one follows immediately, so that there are ten per second in all.
  def pull_each
    due = now
    LEVERS.cycle do |lever|
      break unless time_left?

      guarded { pull(lever) }
      PULLS[lever] += 1
      due += INTERVAL
      sleep([due - now, 0].max)
    end
  end

  # Two threads do this: each either succeeds or is refused because the other is purging or tuning. Neither ever waits.
  def purge_and_tune(busy)
    count = 0
    while time_left?
      begin
        RESULTS << check(Memscope.purge(LEVERS[(count += 1) % LEVERS.size]))
        Memscope.tune(dirty_decay_ms: count % 100, background_thread: count.even?) if JEMALLOC
      rescue Memscope::Purge::Busy
        busy << true
      end
      sleep INTERVAL
    end
  end

  def check(result)
    FAULTS << "rows do not sum: #{result.to_json}" unless result.rows.values.sum == result.returned_bytes
  end

  def run
    Host.start_churning(8)
    busy = Queue.new
    jobs = Array.new(2) { Thread.new { guarded { purge_and_tune(busy) } } }
    pull_each
    jobs.each(&:join)
    Host.stop_churning
    { pulls: PULLS, results: RESULTS.size, busy: busy.size, faults: Array.new(FAULTS.size) { FAULTS.pop } }
  end
end

puts JSON.generate(PurgeStress.run)
