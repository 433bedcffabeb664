# frozen_string_literal: true

require_relative "../test_helper"

# Forking while other threads read ledgers: a child must not inherit a lock that its parent's thread held, such as the
# dynamic linker's, which the C library does not reset.
class ForkTest < MemscopeTest
  parallelize_me!

  both_allocators "children of a process that is reading", in_full: [:jemalloc] do |preload|
    count = child_json(<<~RUBY, preload: preload, timeout: 240)
      2.times { Thread.new { loop { Memscope.ledger } } }
      sums = Array.new(40) do
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

    assert_equal 40, count
  end

  # The end of a child sends no signal, so only a program that its host executes could have it as a zombie: this one
  # waits for any child, as Puma's master does after SIGUSR2.
  WAITS = <<~'RUBY'
    limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
    children = -> { Dir["/proc/self/task/*/children"].flat_map { |file| File.read(file).split } }
    ended = -> { children.call.all? { |pid| File.read("/proc/#{pid}/stat")[/\) (.)/, 1] == "Z" } }
    until children.call.empty? || Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
      begin
        Process.wait(-1, Process::WNOHANG)
      rescue Errno::ECHILD
        break if ended.call
      end
      sleep 0.01
    end
    puts children.call.size
  RUBY

  def test_a_program_that_replaces_a_reading_one_has_no_zombie
    left = child_json(<<~RUBY, requires: ["json"])
      HEAP = Array.new(300_000) { [Object.new] }
      Thread.new { Memscope.heap_graph }
      Thread.pass until Dir["/proc/self/task/*/children"].any? { |file| !File.read(file).empty? }
      exec(#{RbConfig.ruby.dump}, "--disable=gems", "-e", #{WAITS.dump})
    RUBY

    assert_equal 0, left
  end

  # Children inherit nothing that a reading has open at the fork: a memfd, a pagemap, the pipe from the reading's own
  # child. Two files are left out, from which Ruby code reads the process's identity: children of any program may have
  # copies of such files.
  both_allocators "children of a process that is reading have no file of it" do |preload|
    others = child_json(<<~RUBY, preload: preload, requires: ["json"], timeout: 240)
      HEAP = Array.new(300_000) { |number| number.to_s * 3 }
      Memscope.rss # opens a file that stays open
      files = lambda do
        paths = Dir.children("/proc/self/fd").map { |number| "/proc/self/fd/\#{number}" }
        names = paths.filter_map { |path| File.readlink(path).gsub(/\\d+/, "N") if File.symlink?(path) }
        names.sort - %w[/proc/N/stat /proc/sys/kernel/random/boot_id]
      end
      in_child = lambda do
        reading, writing = IO.pipe
        pid = fork { writing.write(JSON.generate(files.call)) && exit!(true) }
        writing.close
        JSON.parse(reading.read).tap { reading.close && Process.wait(pid) }
      end
      go = Queue.new
      [-> { Memscope.ledger(deep: true) }, -> { Memscope::RubyHeap.bounded(budget_us: 0) }].each do |read|
        Thread.new { go.pop && loop(&read) }
      end
      without = in_child.call
      2.times { go << true }
      puts JSON.generate(Array.new(60) { in_child.call } - [without])
      $stdout.flush
      exit!(0)
    RUBY

    assert_empty others
  end
end
