# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/ledger_tree"

# The rows of every ledger sum to what the kernel says, and next to nothing is unattributed, whatever the process is.
class ClosedSumTest < MemscopeTest
  parallelize_me!

  WORKLOADS = File.join(ChildProcess::ROOT, "test/support/workloads")
  KIB = 1024

  # Defines `reading`, which prints a ledger read between two reads of statm.
  READING = <<~'RUBY'
    require "json"
    def statm_bytes = File.read("/proc/self/statm").split[1].to_i * 4096

    def reading
      3.times { Memscope.ledger }
      statm = [statm_bytes]
      ledger = Memscope.ledger
      statm << statm_bytes
      puts %({"statm":#{statm},"ledger":#{ledger.to_json}})
      $stdout.flush
    end
  RUBY

  BUSY_THREADS = <<~RUBY
    ready = Queue.new
    stay = Queue.new
    threads = Array.new(16) do
      Thread.new do
        kept = Array.new(2_000) { |index| "x" * (24 + index) }
        ready << kept.size
        stay.pop
      end
    end
    16.times { ready.pop }
  RUBY

  both_allocators "bare ruby" do |preload|
    assert_closed("reading", preload: preload)
  end

  # Since Ruby 3.3 a thread's VM stack is a malloc block of 1 MiB that is hardly touched.
  VM_STACKS_IN_MALLOC = RUBY_VERSION >= "3.3"

  both_allocators "a fragmented heap" do |preload|
    env = { "RUBY_THREAD_VM_STACK_SIZE" => "131072", "MALLOC_CONF" => "dirty_decay_ms:0" } if VM_STACKS_IN_MALLOC
    ledger = assert_closed("load #{File.join(WORKLOADS, 'storm.rb').dump}; reading",
                           preload: preload, env: { "STRINGS" => "200000", **env.to_h })

    assert_not_resident_small(ledger) if preload
  end

  both_allocators "sixteen threads alive" do |preload|
    assert_closed("#{BUSY_THREADS}\nreading", preload: preload)
  end

  # jemalloc allocates tables for each thread's cache from its arenas: no program was given these.
  def test_what_jemalloc_allocates_for_itself_is_metadata
    skip_under_sanitizer
    totals, rows = child_json(<<~RUBY, preload: "libjemalloc.so.2", requires: ["json"])
      #{BUSY_THREADS}
      totals = Memscope.snapshot.jemalloc
      rows = Memscope.ledger[:malloc].children
      puts JSON.generate([totals, rows.to_h { |row| [row.id, row.bytes] }])
    RUBY
    internal = totals["internal_bytes"]

    assert_operator internal, :>, 256 * KIB
    assert_in_delta totals["metadata_bytes"], rows["metadata"], internal / 2 # some of it is not resident
    assert_in_delta totals["allocated_bytes"] - internal, rows["in_use"] + rows["thread_caches"], internal / 2
  end

  both_allocators "sixteen threads dead" do |preload|
    assert_closed("#{BUSY_THREADS}\nstay.close; threads.each(&:join); threads = nil; reading", preload: preload)
  end

  both_allocators "two hundred fibers" do |preload|
    assert_closed(<<~RUBY, preload: preload)
      fibers = Array.new(200) { Fiber.new { Array.new(100) { |index| "x" * index }.tap { Fiber.yield } } }
      fibers.each(&:resume)
      reading
    RUBY
  end

  both_allocators "a forked child" do |preload|
    assert_closed(<<~RUBY, preload: preload)
      kept = Array.new(100_000) { |index| "x" * (index % 2_000) }
      Memscope.ledger
      Process.wait(fork { reading })
      exit($?.success? && !kept.empty?)
    RUBY
  end

  both_allocators "a Rails application booted", in_full: %i[glibc jemalloc] do |preload|
    skip_under_sanitizer
    ledger = assert_closed("require #{File.join(WORKLOADS, 'rails_app.rb').dump}; reading",
                           preload: preload, bundle: true)

    assert_not_resident_small(ledger) if preload
  end

  # Half of the slots are free, so that the readings' own objects need no new page between the counts. Since Ruby 4.0
  # Ruby counts its empty pages, too.
  both_allocators "page counts" do |preload|
    counts = child_json(<<~RUBY, requires: ["json"], preload: preload)
      objects = Array.new(200_000) { Object.new }.each_slice(2).map(&:first)
      Memscope.ledger # makes Ruby allocate pages of each slot size that the next one needs
      GC.start
      pages = -> { GC.stat(:heap_allocated_pages) - (RUBY_VERSION < "4" ? 0 : GC.stat(:heap_empty_pages)) }
      before = pages.call
      heap = Memscope.ruby_heap
      ledger = Memscope.ledger
      puts JSON.generate([before, heap.pages, ledger[:ruby_heap].detail[:pages], pages.call])
      exit(objects.size == 100_000)
    RUBY

    assert_equal([counts.first] * 4, counts)
  end

  private

  def assert_closed(script, **options)
    answer = child_json("#{READING}\n#{script}", **options)
    tree = LedgerTree.new(answer["ledger"])

    assert_empty(tree.gaps)
    low, high = answer["statm"].minmax
    # The memory that the reading itself needs is already unmapped when statm is read.
    idle = tree.rss_bytes - tree.bytes("memscope")

    assert_includes((low - (64 * KIB))..(high + (64 * KIB)), idle, "statm said #{answer['statm']}\n#{tree}")
    assert_operator(tree.bytes("unattributed"), :<=, [tree.rss_bytes / 200, 256 * KIB].max, <<~TEXT)
      #{tree}
      #{tree.rows.dig('unattributed', 'detail')}
    TEXT
    tree
  end

  def assert_not_resident_small(tree)
    small = (tree.rss_bytes / 100) + (16 * KIB * KIB) + TRANSIENT_HEAP_IN_MALLOC

    assert_operator(tree.bytes("malloc/not_resident").abs, :<=, small, tree.to_s)
  end
end
