# frozen_string_literal: true

require_relative "../test_helper"

# Forking while other threads read ledgers: a child must not inherit a lock that its parent's thread held, such as the
# dynamic linker's, which the C library does not reset.
class ForkTest < MemscopeTest
  parallelize_me!

  both_allocators "children of a process that is reading" do |preload|
    count = child_json(<<~RUBY, preload: preload, timeout: 240)
      2.times { Thread.new { loop { Memscope.ledger } } }
      sums = Array.new(100) do
        pid = fork do
          ledger = Memscope.ledger
          require "io/console"
          exit!(ledger.rows.sum(&:bytes) == ledger.rss_bytes && Memscope.rss ? 0 : 1)
        end
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
        until Process.wait(pid, Process::WNOHANG)
          Process.kill(:KILL, pid) if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
          sleep 0.002
        end
        $?.success?
      end
      puts sums.count(true)
      $stdout.flush
      exit!(0)
    RUBY

    assert_equal 100, count
  end
end
