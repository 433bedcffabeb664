# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/malloc_profile_ways"

# Checks what a malloc profile reports about its own costs against the kernel: its clocks and its resident memory.
class MallocProfileOverheadTest < MemscopeTest
  extend MallocProfileWays

  parallelize_me!

  WAYS = MallocProfileWays::EACH_BACKEND

  PRELUDE = <<~RUBY
    native = Memscope.const_get(:Native)
    profile = Memscope::MallocProfile
    start = -> { profile.start(rate: 512, backend: ENV.fetch("BACKEND").to_sym) }
    overhead = -> { native.malloc_profile(nil)[:overhead] }
  RUBY

  def setup
    super
    skip_under_sanitizer
  end

  def child(script, settings)
    child_json("#{PRELUDE}\n#{script}", requires: %w[json memscope_test], **settings)
  end

  # memscope's tables are the only mappings with both flags nr (no swap reservation) and nh (no huge pages). The blocks
  # are of eight times the rate, so that one in 3000 is not sampled; each generation has stacks of its own.
  each_way("tables_are_as_large_as_the_kernel_says") do |settings|
    skip "this kernel has no huge pages" unless File.exist?("/sys/kernel/mm/transparent_hugepage/enabled")
    answer = child(<<~'RUBY', settings)
      tables = lambda do
        mappings = File.read("/proc/self/smaps").split(/^(?=\h+-\h+ )/)
        mine = mappings.select { |one| (%w[nr nh] - one[/^VmFlags:.*/].to_s.split).empty? }
        mine.sum { |one| one[/^Rss: +(\d+) kB/, 1].to_i * 1024 }
      end
      answers = [10, 10_000].map do |generations|
        start.call
        generations.times { native.next_generation && Leaks.leak(4096, 1, :here) }
        native.stop_profile
        [tables.call, overhead.call[:table_bytes], tables.call]
      end
      puts JSON.generate(answers)
    RUBY
    small, large = answer

    # A page that was only read is mapped, but has no memory of its own: the two may differ by such pages.
    [small, large].each do |before, said, after|
      assert_equal before, after
      assert_in_delta before, said, 16 * 4096
    end
    assert_operator large[1], :>, 0
    # At least a sample, its stack and eight words; only the tables of frames and names do not grow.
    assert_operator large[1], :>, small[1] + (10_000 * (24 + 40 + (8 * 8))) unless settings[:preload]
  end

  # The same work with and without the profile, and twice as much, in memory that was touched before. Without it, the
  # fastest of three runs counts, since another process may slow one down. With the imports, reading the stack takes
  # most of a sample's time (0.64 to 0.73 on an idle machine, 0.33 on a busy one), and the table the rest. jemalloc's
  # own work takes twice as long (0.30 to 0.43).
  each_way("nanoseconds_are_within_what_the_same_work_takes_longer") do |settings|
    answer = child(<<~RUBY, settings)
      def deep(levels, &block) = levels.zero? ? block.call : deep(levels - 1, &block)
      cpu, wall = [Process::CLOCK_PROCESS_CPUTIME_ID, Process::CLOCK_MONOTONIC].map do |clock|
        -> { Process.clock_gettime(clock, :nanosecond) }
      end
      took = lambda do |blocks|
        before = [cpu.call, wall.call]
        deep(40) { Leaks.leak(4096, blocks, :here) }
        [cpu.call - before[0], wall.call - before[1]].tap { Leaks.free(blocks, :here) }
      end
      took.call(40_000)
      GC.start
      GC.disable
      without = [20_000, 40_000].map { |blocks| Array.new(3) { took.call(blocks).first }.min }
      start.call
      took.call(40_000)
      told = [overhead.call]
      with = [20_000, 40_000].map { |blocks| took.call(blocks).tap { told << overhead.call } }
      taken = told.each_cons(2).map { |a, b| %i[samples_taken nanoseconds].map { |name| b[name] - a[name] } }
      puts JSON.generate([without, with, taken])
    RUBY

    answer.transpose.zip([20_000, 40_000]) do |(without, with, (samples, nanoseconds)), blocks|
      assert_in_delta blocks, samples, blocks / 10, "what reading the profile allocates is sampled too"
      assert_operator nanoseconds, :<, with[1] - without, "more than the clock went on by"
      assert_operator nanoseconds, :>, 0.2 * (with[0] - without), "less than a fifth of the CPU time that it took"
    end
  end
end
