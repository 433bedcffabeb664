# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/ledger_tree"
require_relative "../support/workloads/staying_threads"

# Checks deep:, shared: and objects: against independent sources: mallinfo2, malloc_trim, smaps_rollup, and memory that
# a C extension holds.
class DepthTest < MemscopeTest
  parallelize_me!

  MIB = 1024 * 1024
  KIB_64 = 64 * 1024
  BUSY_PUMA = File.join(ChildProcess::ROOT, "test/support/workloads/busy_puma")

  FRAGMENT = <<~RUBY
    random = Random.new(%<seed>d)
    strings = Array.new(300_000) { "x" * (20 + random.rand(1_000)) }
    strings.map!.with_index { |string, index| string if (index %% 50).zero? }
    GC.start
  RUBY

  def test_chunks_sum_to_what_glibc_counts
    skip_under_sanitizer
    answer = child_json(<<~RUBY, requires: [StayingThreads::PATH])
      #{format(FRAGMENT, seed: 1)}
      StayingThreads.start(8) { strings.concat(Array.new(20_000) { "y" * rand(1_000) }).size }
      require "json"
      GC.disable
      ledger = Memscope.ledger(deep: true)
      glibc = Memscope.snapshot(malloc: true).glibc
      puts JSON.generate(ledger: JSON.parse(ledger.to_json), glibc: glibc)
    RUBY
    tree = LedgerTree.new(answer["ledger"])
    glibc = answer["glibc"]
    detail = tree.rows.fetch("malloc/mmapped").fetch("detail")

    assert_empty tree.gaps
    # Mappings are whole pages; each mremap leaves hblkhd of glibc 2.43 sixteen bytes too high. What is mapped for the
    # transient heap is Ruby's own.
    aligned = TRANSIENT_HEAP_IN_MALLOC.zero? ? 0 : TRANSIENT_HEAP_IN_MALLOC + 32_768 + 4096

    assert_equal (glibc["hblkhd"] / 4096 * 4096) - aligned, detail["mapped_bytes"]
    assert_equal glibc["hblks"] - (aligned.zero? ? 0 : 1), detail["blocks"]
    assert_in_delta glibc["fordblks"], chunk_bytes(tree, "free") + chunk_bytes(tree, "top"), KIB_64
    assert_in_delta glibc["uordblks"], chunk_bytes(tree, "in_use") + chunk_bytes(tree, "thread_caches"), KIB_64
    assert_operator tree.bytes("malloc/main_heap/unwalked") + tree.bytes("malloc/arenas/unwalked"), :<=, KIB_64
  end

  5.times do |seed|
    test = define_method("test_the_trim_forecast_#{seed}") do
      skip_under_sanitizer
      forecast, returned = child_json(<<~RUBY, requires: ["memscope_test"])
        #{format(FRAGMENT, seed: seed)}
        Memscope.ledger(deep: true)
        forecast = Memscope.ledger(deep: true)[:malloc].detail[:trimmable_bytes]
        before = Memscope.rss
        Host.malloc_trim
        puts [forecast, before - Memscope.rss].inspect
      RUBY

      assert_operator returned, :>=, 64 * MIB
      assert_in_delta returned, forecast, returned * 0.03
    end
    only_in_full(test) if seed.positive?
  end

  # If glibc asks for huge pages, the main heap does not begin with a chunk.
  def test_hugetlb_leaves_the_rest_in_a_row_of_its_own
    skip_under_sanitizer
    answer = child_json(<<~RUBY, env: { "GLIBC_TUNABLES" => "glibc.malloc.hugetlb=1" })
      #{format(FRAGMENT, seed: 1)}
      puts Memscope.ledger(deep: true).to_json
    RUBY

    assert_empty LedgerTree.new(answer).gaps
  end

  def test_what_malloc_has_in_use_is_unknown_if_a_page_is_unreadable
    skip_under_sanitizer
    answer = child_json(<<~RUBY, requires: ["memscope_test"])
      Host.malloc_blocks(100, 2_000)
      Host.hide_blocks
      puts Memscope.ledger(deep: true, objects: true).to_json
    RUBY

    assert_empty answer["rows"].find { |row| row["id"] == "malloc" }["detail"]
    assert_operator LedgerTree.new(answer).bytes("malloc/main_heap/unwalked"), :>, 0
    assert_match(/could not read all of them/, answer["reasons"]["deep"])
    assert_equal answer["reasons"]["deep"], answer["reasons"]["objects"]
  end

  # Arenas grow while they are read: by pages that were not resident, and heaps that were smaller, a moment before.
  def test_heaps_that_grow_meanwhile
    skip_under_sanitizer
    answers = child_json(<<~RUBY, requires: ["json", BUSY_PUMA], bundle: true)
      def counted = Memscope.snapshot(malloc: true).glibc.then { |glibc| glibc[:uordblks] + glibc[:hblkhd] }
      BusyPuma.while_serving do
        GC.disable
        puts JSON.generate(Array.new(20) do
          before, ledger = counted, Memscope.ledger(deep: true)
          [before, ledger[:malloc].detail[:in_use_bytes], counted, ledger[:unattributed].bytes]
        end)
      end
    RUBY
    known = answers.select { |_before, in_use| in_use }

    assert_operator known.size, :>=, answers.size * 9 / 10
    known.each { |before, in_use, after| assert_includes (before * 0.97)..(after * 1.03), in_use }
    assert_operator answers.map(&:last).max, :<, 4 * MIB
  end

  def test_jemalloc_has_nothing_to_walk
    answer = child_json("puts Memscope.ledger(deep: true).to_json", preload: "libjemalloc.so.2")

    assert_match(/no effect under jemalloc/, answer["reasons"]["deep"])
  end

  def test_objects_of_a_type_without_a_name
    before, after = child_json(<<~RUBY, requires: ["memscope_test"])
      before = Memscope.ledger(objects: true).held_by_objects_bytes
      kept = Host.nameless(8 << 20)
      puts [before, Memscope.ledger(objects: true).held_by_objects_bytes].inspect
    RUBY

    assert_in_delta 8 * MIB, after - before, MIB
  end

  both_allocators "objects account for what they hold" do |preload|
    skip_under_sanitizer
    detail = malloc_detail(preload, <<~RUBY)
      kept = Array.new(200_000) { |index| "x" * (100 + (index % 900)) } + Array.new(20_000) { "y" * 10_000 }
      lists = Array.new(20_000) { |index| Array.new(30) { index } }
      hashes = Array.new(5_000) { |index| Array.new(40) { |key| [key, index] }.to_h }
    RUBY

    in_use = detail["in_use_bytes"] - (preload ? TRANSIENT_HEAP_IN_MALLOC : 0)

    assert_operator detail["held_by_objects_bytes"], :>=, 0.9 * in_use
    assert_operator detail["untracked_bytes"], :>=, 0
  end

  both_allocators "nobody in Ruby holds a leak" do |preload|
    skip_under_sanitizer
    before, after, leaked = child_json(<<~RUBY, preload: preload, requires: ["memscope_test"])
      GC.start
      GC.disable
      nobody = -> { Memscope.ledger(deep: true, objects: true)[:malloc].detail[:untracked_bytes] }
      nobody.call
      before = nobody.call
      leaked = Host.malloc_blocks(1_000, 32_000)
      puts [before, nobody.call, leaked].inspect
    RUBY

    assert_in_delta leaked, after - before, leaked * 0.02
  end

  both_allocators "shared and private after a fork", in_full: [:jemalloc] do |preload|
    shares = child_json(<<~RUBY, preload: preload)
      require "json"
      heap = Array.new(200) { "x" * #{MIB} }
      GC.start
      text = String.new(capacity: 8_192)
      rollup = lambda do
        File.open("/proc/self/smaps_rollup") { |file| file.sysread(8_192, text) }
        sizes = text.scan(/^(Shared|Private)_\\w+: +(\\d+)/)
        %w[Shared Private].map { |kind| sizes.sum { |name, kib| name == kind ? kib.to_i * 1024 : 0 } }
      end
      # Another process that ends or begins meanwhile changes which pages of libraries are shared.
      measure = lambda do
        20.times do
          before = rollup.call
          ledger = Memscope.ledger(shared: true)
          still = before.zip(rollup.call).all? { |one, other| (one - other).abs < 65_536 }
          read = [ledger.rows.sum(&:shared_bytes), ledger.rows.sum(&:private_bytes), ledger[:memscope].bytes, *before]
          break read if still
        end
      end
      reader, writer = IO.pipe
      pid = fork do
        2.times { measure.call }
        first = measure.call
        heap.first(100).each { |string| string.setbyte(0, 1); (0...string.size).step(4096) { |at| string.setbyte(at, 2) } }
        writer.puts JSON.generate([first, measure.call])
        exit!(0)
      end
      Process.wait(pid)
      puts reader.gets
    RUBY

    shares.each do |shared, private_bytes, scratch, kernel_shared, kernel_private|
      assert_in_delta kernel_shared, shared, 256 * 1024
      assert_in_delta kernel_private, private_bytes - scratch, 256 * 1024
    end
    # Some of these pages may have been private before.
    assert_operator shares[0][0] - shares[1][0], :>=, 80 * MIB
  end

  # Without thread caches no chunk is cached, and none can be marked.
  def test_thread_caches_that_are_switched_off
    skip_under_sanitizer
    reason = child_json("require 'json'; puts Memscope.ledger(deep: true).to_json",
                        env: { "GLIBC_TUNABLES" => "glibc.malloc.tcache_count=0" })["reasons"]["thread_caches"]

    assert_match(/if there are any \(glibc\.malloc\.tcache_count\), .* in this one \(\d\.\d+\)/, reason)
  end

  private

  def malloc_detail(preload, script)
    child_json("#{script}\nGC.start\nrequire \"json\"\n" \
               "puts Memscope.ledger(deep: true, objects: true)[:malloc].detail.to_json", preload: preload)
  end

  def chunk_bytes(tree, kind)
    %w[main_heap arenas].sum { |heap| tree.rows.dig("malloc/#{heap}/#{kind}", "detail", "chunk_bytes") || 0 }
  end
end
