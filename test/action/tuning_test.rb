# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/workloads/staying_threads"

class TuningTest < MemscopeTest
  JEMALLOC = ChildProcess::ALLOCATORS[:jemalloc]
  # As many threads as arenas, so that each arena has one: the next thread takes an arena without threads.
  FOUR_THREADS = "StayingThreads.start(4) { Host.malloc_blocks(100, 4_000) }"
  # No block of Ruby's own is large enough for the fifth arena.
  FOUR = { "MALLOC_CONF" => "narenas:4,dirty_decay_ms:9000,muzzy_decay_ms:0,oversize_threshold:1073741824" }.freeze

  def setup
    skip_under_sanitizer
  end

  def under_jemalloc(script, env: FOUR)
    child_json(script, preload: JEMALLOC, env: env, requires: ["json", "memscope_test", StayingThreads::PATH])
  end

  def times(decay)
    decay.values_at("old_dirty_decay_ms", "dirty_decay_ms", "old_muzzy_decay_ms", "muzzy_decay_ms")
  end

  # Two of the five arenas have threads: setting the others' times fails with EFAULT on jemalloc 5.3.0.
  def test_every_arena_in_use_and_those_made_later
    tuning, again, read, later = under_jemalloc(<<~RUBY)
      Thread.new { Host.malloc_blocks(100, 4_000) }.join
      tuning = Memscope.tune(dirty_decay_ms: 1_000, muzzy_decay_ms: -1)
      again = Memscope.tune(dirty_decay_ms: 0)
      3.times { Thread.new { Host.malloc_blocks(100, 4_000) }.join }
      #{FOUR_THREADS}
      decay = ->(index) { Host.mallctl("arena.\#{index}.dirty_decay_ms", 8) }
      puts JSON.generate([tuning.to_h, again.to_h, Array.new(4) { |index| decay.call(index) },
                          Host.mallctl("arenas.dirty_decay_ms", 8)])
    RUBY

    assert_equal 2, tuning["arenas"].size
    tuning["arenas"].each { |decay| assert_equal [9000, 1000, 0, -1], times(decay) }
    again["arenas"].each { |decay| assert_equal [1000, 0, -1, -1], times(decay) }
    assert_equal [9000, 1000, 0, -1], times(tuning["new_arena_defaults"])
    assert_equal "3 of 5 arenas are not in use yet. New arenas begin with new_arena_defaults",
                 tuning["reasons"]["arenas"]
    assert_equal [[0] * 4, 0], [read, later]
  end

  def test_a_time_of_0_gives_unused_pages_back
    before, after = under_jemalloc(<<~RUBY, env: { "MALLOC_CONF" => "dirty_decay_ms:-1" })
      Host.malloc_blocks(64_000, 1_024)
      Host.free_blocks
      dirty = -> { Host.mallctl("stats.arenas.4096.pdirty", 8) * 4_096 }
      before = dirty.call
      Memscope.tune(dirty_decay_ms: 0)
      puts JSON.generate([before, dirty.call])
    RUBY

    assert_operator before, :>=, 60_000_000
    assert_operator after, :<, 1_000_000
  end

  def test_background_threads_of_this_process_and_of_a_child
    states, threads = under_jemalloc(<<~RUBY)
      state = ->(tuning) { [tuning.old_background_thread?, tuning.background_thread?] }
      states = [state.call(Memscope.tune(background_thread: true))]
      threads = Dir.children("/proc/self/task").size
      reader, writer = IO.pipe
      pid = fork do
        writer.puts JSON.generate([state.call(Memscope.tune), state.call(Memscope.tune(background_thread: true))])
        exit!(0)
      end
      Process.wait(pid)
      states += JSON.parse(reader.gets)
      states << state.call(Memscope.tune(background_thread: false))
      puts JSON.generate([states, threads])
    RUBY

    assert_equal [[false, true], [false, false], [false, true], [true, false]], states
    assert_operator threads, :>=, 2
  end

  def test_wrong_arguments_are_refused_before_anything_is_set
    messages, before, after = under_jemalloc(<<~RUBY)
      refused = [{ muzzy_decay_ms: -2 }, { muzzy_decay_ms: 1.0 }, { muzzy_decay_ms: 18_446_744_072_001 },
                 { muzzy_decay_ms: true }, { background_thread: 1 }, { background_thread: "true" }]
      before = Memscope.tune.body.slice(:arenas, :new_arena_defaults, :background_thread)
      messages = refused.map do |options|
        Memscope.tune(dirty_decay_ms: 1, **options)
        nil
      rescue ArgumentError => e
        e.message
      end
      puts JSON.generate([messages, before, Memscope.tune.body.slice(:arenas, :new_arena_defaults, :background_thread)])
    RUBY

    messages.each { |message| assert_match(/\AMemscope\.tune: \w+: given .+, allowed: nil, /, message) }
    assert_equal "Memscope.tune: muzzy_decay_ms: given -2, allowed: nil, an Integer from -1 (never) to " \
                 "18446744072000, in milliseconds", messages[0]
    assert_equal before, after
  end

  def test_busy
    answer = under_jemalloc(<<~RUBY)
      Memscope::Purge.with_exclusive_purge do
        read = Memscope.tune.arenas.size
        Memscope.tune(dirty_decay_ms: 1)
      rescue Memscope::Purge::Busy
        puts JSON.generate([read, Memscope.tune[0].dirty_decay_ms])
      end
    RUBY

    assert_equal [1, 9000], answer
  end

  def test_only_jemalloc_can_be_tuned
    { dirty_decay_ms: 0, muzzy_decay_ms: 0, background_thread: true }.each do |name, value|
      assert_equal "Memscope.tune: #{name}: given #{value}, allowed: nil; only jemalloc can be tuned while it runs",
                   assert_raises(ArgumentError) { Memscope.tune(name => value) }.message
    end
    tuning = Memscope.tune

    assert_equal [:glibc, []], [tuning.allocator, tuning.arenas]
    assert_nil tuning.new_arena_defaults
    assert_nil tuning.background_thread?
    assert_equal({ arenas: "only jemalloc can be tuned while it runs" }, tuning.reasons)
  end

  def test_a_tuning_is_a_reading
    tuning = Memscope::Tuning.from_h(under_jemalloc("puts Memscope.tune(dirty_decay_ms: 7).to_json"))

    assert_equal ["tuning", 7, 9000], [tuning.kind, tuning[0].dirty_decay_ms, tuning[0].old_dirty_decay_ms]
    assert_equal tuning, Memscope::Tuning.from_h(JSON.parse(tuning.to_json))
  end
end
