# frozen_string_literal: true

# Everything at once, for ENV["SECONDS"]: two threads read ledgers, two Ruby threads and two without the GVL allocate,
# threads come and go, the heap is compacted where it can be, and once a second a child is forked that reads a ledger
# too. Prints the numbers of actions, and each ledger whose rows did not sum to its own scan.

require "json"
require "memscope_test"

module Stress
  SECONDS = Integer(ENV.fetch("SECONDS"))
  FINISH = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS
  # gcc 12's ASan does not acquire its allocator's locks around a fork: a thread in malloc, or one that ends, would
  # leave them locked in the child for ever.
  FORKS = !ENV["MEMSCOPE_SANITIZER"]
  FAULTS = Queue.new
  READ = Queue.new

  module_function

  def time_left?
    Process.clock_gettime(Process::CLOCK_MONOTONIC) < FINISH
  end

  def gaps(whole, rows)
    sum = rows.sum(&:bytes)
    own = sum == whole ? [] : ["#{rows.map(&:id).join(', ')} sum to #{sum}, not to #{whole}"]
    own + rows.reject { |row| row.children.empty? }.flat_map { |row| gaps(row.bytes, row.children) }
  end

  def closed?(strict)
    ledger = Memscope.ledger(strict: strict)
    found = gaps(ledger.rss_bytes, ledger.rows)
    FAULTS << found unless found.empty?
    found.empty?
  end

  def allocate
    kept = Array.new(1_000)
    random = Random.new
    500.times { kept[random.rand(1_000)] = "x" * random.rand(1..20_000) } while time_left?
  end

  def come_and_go
    while time_left?
      Array.new(8) { Thread.new { Fiber.new { "x" * 100_000 }.resume } }.each(&:join)
      sleep 0.02
    end
  end

  def compact
    while time_left?
      GC.compact
      sleep 0.25
    end
  end

  # exit! skips at_exit handlers and finalizers, which belong to the parent.
  def fork_a_reader
    pid = fork { exit!(closed?(false)) }
    _, status = Process.wait2(pid)
    FAULTS << ["a forked child: #{status}"] unless status.success?
  end

  def fork_readers
    forks = 0
    loop do
      fork_a_reader
      forks += 1
      return forks unless time_left?

      sleep 1
    end
  end

  def run
    Host.start_churning(2)
    jobs = [false, true].map { |strict| Thread.new { READ << closed?(strict) while time_left? } }
    jobs += Array.new(2) { Thread.new { allocate } }
    jobs << Thread.new { come_and_go }
    jobs << Thread.new { compact } unless Memscope::Purge.missing[:compact]
    forks = FORKS ? fork_readers : 0
    jobs.each(&:join)
    Host.stop_churning
    { ledgers: READ.size, forks: forks, faults: Array.new(FAULTS.size) { FAULTS.pop } }
  end
end

puts JSON.generate(Stress.run)
