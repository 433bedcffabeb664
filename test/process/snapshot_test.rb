# frozen_string_literal: true

require_relative "../test_helper"
require "etc"
require "json"

class SnapshotTest < MemscopeTest
  MEBIBYTE = 1 << 20

  # The reading lies between statm's values before and after: other tests' threads end, and their stacks are freed.
  def test_statm
    before = statm_bytes
    snapshot = Memscope.snapshot
    after = statm_bytes
    %i[virtual_bytes rss_bytes shared_bytes].each_with_index do |name, index|
      least, most = [before[index], after[index]].minmax

      assert_includes (least - MEBIBYTE)..(most + MEBIBYTE), snapshot.public_send(name), name
    end
  end

  def statm_bytes = File.read("/proc/self/statm").split.map { |pages| pages.to_i * page_size }

  def test_gc_has_the_keys_that_this_ruby_has
    GC.disable
    before = GC.stat(:heap_allocated_pages)
    snapshot = Memscope.snapshot
    after = GC.stat(:heap_allocated_pages)

    assert_equal GC.stat.keys, snapshot.gc.keys
    assert_includes before..after, snapshot.gc[:heap_allocated_pages]
    assert_equal GC.count, snapshot.gc[:count]
  ensure
    GC.enable
  end

  def test_gc_heaps
    snapshot = Memscope.snapshot
    if GC.respond_to?(:stat_heap)
      assert_equal GC.stat_heap.keys, snapshot.gc_heaps.keys
      assert_equal GC.stat_heap(0).keys, snapshot.gc_heaps[0].keys
      assert_equal GC.stat_heap(0, :slot_size), snapshot.gc_heaps[0][:slot_size]
    else
      assert_nil snapshot.gc_heaps
      assert_match(/no GC\.stat_heap/, snapshot.reasons[:gc_heaps])
    end
  end

  # As Ruby 3.2 and later fill it, whatever Ruby runs this.
  def test_gc_heaps_are_read_into_a_hash_that_has_all_keys
    result = ChildProcess.run(<<~RUBY)
      def GC.stat_heap(heap = nil, into = { 0 => { slot_size: 40 }, 1 => { slot_size: 80 } })
        into.each_value { |stat| stat[:heap_eden_pages] = stat[:slot_size] / 10 }
      end
      require "memscope"
      puts Memscope.snapshot.to_json
    RUBY

    assert_equal({ "0" => { "slot_size" => 40, "heap_eden_pages" => 4 },
                   "1" => { "slot_size" => 80, "heap_eden_pages" => 8 } }, result.json["gc_heaps"])
  end

  both_allocators "no object is allocated before the last number is read" do |preload|
    allocated = child_json(<<~RUBY, preload: preload, requires: ["json"])
      GC.disable
      def allocated
        before = GC.stat(:total_allocated_objects)
        Memscope.snapshot.gc[:total_allocated_objects] - before
      end
      3.times { allocated }
      puts allocated
    RUBY

    assert_equal 0, allocated
  end

  def test_jemalloc
    skip_under_sanitizer
    before, after = child_json(<<~RUBY, preload: "libjemalloc.so.2", requires: ["json"])
      before = Memscope.snapshot
      blocks = Array.new(1000) { "x" * 100_000 }
      puts JSON.generate([before.to_h, Memscope.snapshot.to_h])
      blocks.clear
    RUBY

    assert_operator after["jemalloc"]["allocated_bytes"] - before["jemalloc"]["allocated_bytes"], :>=, 95 * MEBIBYTE
    assert_operator after["jemalloc"]["epoch"], :>, before["jemalloc"]["epoch"]
    assert_operator after["jemalloc"]["slab_slack_bytes"], :>, 0
    assert_nil after["glibc"]
    assert_match(/glibc does not serve malloc/, after["reasons"]["glibc"])
  end

  def test_glibc_is_read_only_where_it_was_asked_for
    skip_under_sanitizer
    plain, full = child_json("puts JSON.generate([Memscope.snapshot.to_h, Memscope.snapshot(malloc: true).to_h])",
                             requires: ["json"])

    assert_nil plain["glibc"]
    assert_match(/malloc: true/, plain["reasons"]["glibc"])
    assert_equal "T1", plain["cost"]["tier"]
    assert_equal %w[arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost],
                 full["glibc"].keys
    assert_operator full["glibc"]["uordblks"], :>, MEBIBYTE
    assert_equal "T2", full["cost"]["tier"]
    assert_match(/jemalloc does not serve malloc/, full["reasons"]["jemalloc"])
  end

  # Under a sanitizer, and if jemalloc serves malloc, mallinfo2 returns zeros.
  def test_zeros_of_mallinfo2_are_not_taken_for_numbers
    glibc, reasons = child_json("s = Memscope.snapshot(malloc: true); puts JSON.generate([s.glibc, s.reasons])",
                                preload: "libjemalloc.so.2", requires: ["json"])

    assert_nil glibc
    assert_includes reasons, "glibc"
  end

  def test_malloc_is_true_or_false
    assert_raises(ArgumentError) { Memscope.snapshot(malloc: 1) }
    assert_raises(ArgumentError) { Memscope.snapshot(mallocs: true) }
  end

  def test_a_difference_knows_counters_from_gauges
    before = Memscope.snapshot
    GC.start
    diff = Memscope.snapshot - before

    assert_operator diff.dig(:gc, :count).change, :>=, 1
    assert_predicate diff.dig(:gc, :count), :counter?
    refute_predicate diff.dig(:gc, :heap_live_slots), :counter?
    refute_predicate diff[:rss_bytes], :counter?
  end

  def test_every_counter_of_gc_is_told_from_the_levels
    rising = GC.stat.keys.grep(/\A(total_|count\z|time\z)|_time\z|gc_count\z|compact_count\z/)

    assert_equal [], rising - Memscope::Snapshot.declared(:gc).counters
  end

  def test_counters_of_jemalloc_come_from_the_table_of_keys
    counters = Memscope::Snapshot.declared(:jemalloc).counters

    assert_includes counters, :small_nmalloc
    refute_includes counters, :allocated_bytes
    assert_predicate counters, :frozen?
  end

  both_allocators "survives json" do |preload|
    same = child_json("s = Memscope.snapshot(malloc: true); " \
                      "puts Memscope::Snapshot.from_h(JSON.parse(s.to_json)) == s",
                      preload: preload, requires: ["json"])

    assert same
  end

  def test_every_nil_has_a_reason
    snapshot = Memscope.snapshot
    unknown = snapshot.body.select { |_, value| value.nil? }.keys

    assert_equal [], unknown - snapshot.reasons.keys
  end

  def test_is_frozen_throughout
    snapshot = Memscope.snapshot

    assert_predicate snapshot.gc, :frozen?
    assert_predicate snapshot.reasons, :frozen?
    assert_predicate snapshot, :frozen?
  end

  def test_other_threads_run_and_read_meanwhile
    skip_under_sanitizer

    assert child_json(<<~RUBY, preload: "libjemalloc.so.2")
      threads = 4.times.map { Thread.new { 200.times.map { Memscope.snapshot.jemalloc[:allocated_bytes] } } }
      puts threads.flat_map(&:value).all?(&:positive?)
    RUBY
  end

  # Each snapshot of a thread counts objects that the thread's previous one did not, so no two of them can be equal.
  # Those of two threads can: one thread has read, waits for malloc without the GVL, and has made no object yet.
  both_allocators "each is of its own moment" do |preload|
    skip_under_sanitizer

    assert_empty child_json(<<~RUBY, preload: preload)
      threads = 4.times.map do
        Thread.new { 1_000.times.map { Memscope.snapshot(malloc: true).gc[:total_allocated_objects] } }
      end
      p threads.flat_map { |thread| thread.value.tally.select { |_, times| times > 1 }.keys }
    RUBY
  end

  private

  def page_size = Etc.sysconf(Etc::SC_PAGESIZE)
end
