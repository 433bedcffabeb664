# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"
require_relative "../support/malloc_info_xml"
require_relative "../support/printed_by_malloc"

class ArenasTest < MemscopeTest
  include PrintedByMalloc

  parallelize_me!

  # Our field names that differ from the keys of malloc_stats_print's JSON, which counts pages instead of bytes.
  PRINTED = {
    "threads" => "nthreads", "active_bytes" => "pactive", "dirty_bytes" => "pdirty", "muzzy_bytes" => "pmuzzy",
    "dirty_purges" => "dirty_npurge", "dirty_madvises" => "dirty_nmadvise", "dirty_purged_pages" => "dirty_purged",
    "muzzy_purges" => "muzzy_npurge", "muzzy_madvises" => "muzzy_nmadvise", "muzzy_purged_pages" => "muzzy_purged",
    "mapped_bytes" => "mapped", "retained_bytes" => "retained", "resident_bytes" => "resident",
    "base_bytes" => "base", "internal_bytes" => "internal",
    "small_allocated_bytes" => "small.allocated", "large_allocated_bytes" => "large.allocated"
  }.freeze
  PAGES = %w[pactive pdirty pmuzzy].freeze

  PRINTED_FROM = %w[0 merged].freeze
  PRINTING_MOVES = %w[active_bytes dirty_bytes internal_bytes resident_bytes large_allocated_bytes].freeze

  def printed_arena(printed, page, fields)
    fields.to_h do |field|
      key = PRINTED.fetch(field, field)
      value = printed.dig(*key.split("."))
      [field, PAGES.include?(key) ? value * page : value]
    end
  end

  def test_every_number_of_jemallocs_arenas_is_what_it_prints
    printed, reading, took = described("arenas", preload: JEMALLOC, env: ManyArenas::JEMALLOC)
    page = printed.dig("arenas", "page")
    names = printed["stats.arenas"].keys.grep(/\A\d+\z/)

    assert_operator names.size, :>=, 16
    assert_operator reading["arenas"].sum { |arena| arena["dirty_purged_pages"] }, :>, 0
    assert_equal(names, reading["arenas"].map { |arena| arena["index"].to_s })
    [*names.zip(reading["arenas"]), ["merged", reading["merged"]]].each do |name, arena|
      told = arena.except("index", "name", "huge", "uptime_ns", "mutexes", "allocated_bytes", "metadata_bytes")
      expected = printed.dig("stats.arenas", name)

      compared = told.keys - (PRINTED_FROM.include?(name) ? PRINTING_MOVES : [])

      assert_equal printed_arena(expected, page, compared), told.slice(*compared), name
      assert_equal told["small_allocated_bytes"] + told["large_allocated_bytes"], arena["allocated_bytes"]
      assert_equal told["base_bytes"] + told["internal_bytes"], arena["metadata_bytes"]
      assert_equal expected["mutexes"].keys, arena["mutexes"].keys
      assert_in_delta expected["uptime_ns"], arena["uptime_ns"], took + 1e8
    end
    PRINTING_MOVES.each do |field|
      assert_equal reading["arenas"].sum { |arena| arena[field] }, reading["merged"][field], field
    end
  end

  def test_every_number_of_glibcs_arenas_is_in_its_xml
    description, reading = described("arenas", env: { "MALLOC_ARENA_MAX" => "17" })
    xml = MallocInfoXML.new(description)

    assert_operator xml.heaps.size, :>=, 16
    assert_equal xml.heaps.size, reading["arenas"].size
    [*xml.heaps.zip(reading["arenas"]), [xml.totals, reading["merged"]]].each do |heap, arena|
      expected = { "free_bytes" => heap["total rest size"], "free_blocks" => heap["total rest count"],
                   "fast_bytes" => heap["total fast size"], "fast_blocks" => heap["total fast count"],
                   "system_bytes" => heap["system current size"], "system_max_bytes" => heap["system max size"],
                   "address_space_bytes" => heap["aspace total size"],
                   "writable_bytes" => heap["aspace mprotect size"], "heaps" => heap["aspace subheaps size"],
                   "index" => heap["index"] }

      assert_equal expected.compact, arena.except("allocated_bytes", "resident_bytes", "free_sizes").compact
      assert_equal(heap["sizes"].to_a, arena["free_sizes"].to_a.map { |size| free_size(size) })
      assert_equal heap["system current size"] - heap["total rest size"] - heap["total fast size"].to_i,
                   arena["allocated_bytes"]
    end
    assert_equal xml.totals.values_at("total mmap size", "total mmap count"),
                 reading.values_at("mmapped_bytes", "mmapped_blocks")
  end

  # A trim leaves the address space, but makes less of it resident. Each thread has its own arena, of its own size.
  RESIDENT = <<~RUBY
    mebibytes = [4, 12, 20, 28]
    steps = Queue.new
    threads = mebibytes.map do |size|
      Thread.new do
        Thread.current[:kept] = Array.new(size * 1024) { "x" * 1000 }
        steps << :filled
        sleep
      end
    end
    threads.each { steps.pop }
    read = lambda do
      arenas = Memscope.arenas
      ledger = Memscope.ledger
      malloc = ledger.rows.find { |row| row.id == :malloc }
      rows = malloc.children.to_h { |row| [row.id, row.bytes] }
      [arenas.map { |arena| [arena.resident_bytes, arena.system_bytes] }, arenas.merged.resident_bytes,
       rows.values_at(:main_heap, :arenas), arenas.reasons[:resident_bytes]]
    end
    2.times { read.call }
    full = read.call
    threads.each { |thread| thread[:kept].clear }
    GC.start
    Memscope.purge(:trim)
    puts JSON.generate([full, read.call])
  RUBY

  def test_what_is_resident_of_glibcs_arenas
    skip_under_sanitizer
    full, trimmed = ChildProcess.run(RESIDENT, env: { "MALLOC_ARENA_MAX" => "5" }, requires: %w[json memscope]).json
    [full, trimmed].each do |arenas, merged, (main_heap, others), reason|
      assert_nil reason
      assert_equal merged, arenas.sum(&:first)
      assert_in_delta main_heap, arenas.first.first, 262_144
      assert_in_delta others, arenas.drop(1).sum(&:first), 262_144
    end
    filled = full.first.drop(1).map { |resident, _system| resident / 1_048_576.0 }.sort

    filled.last(4).zip([4, 12, 20, 28]).each { |resident, size| assert_in_delta size, resident, 4 }
    full.first.drop(1).zip(trimmed.first.drop(1)).each do |(before, _), (after, system)|
      assert_operator after, :<, (before / 2) + 1_048_576
      assert_operator after, :<=, system
    end
  end

  def free_size(size)
    [size["unsorted"] ? "unsorted" : "size", *size.values_at("from_bytes", "to_bytes", "bytes", "blocks")]
  end

  both_allocators "comes back from json" do |preload|
    same = child_json(<<~RUBY, preload: preload, requires: ["json"])
      readings = [Memscope.arenas, Memscope.size_classes, Memscope.fragmentation]
      puts readings.map { |reading| reading.class.from_h(JSON.parse(reading.to_json)) == reading }.inspect
    RUBY

    assert_equal [true, true, true], same
  end

  def test_counters_are_told_from_gauges
    skip_under_sanitizer
    told = child_json(<<~RUBY, preload: JEMALLOC, requires: ["json"])
      arenas, classes = Memscope.arenas, Memscope.size_classes
      kept = Array.new(1000) { "x" * 2000 }
      arenas, classes = Memscope.arenas - arenas, Memscope.size_classes - classes
      changes = [arenas.dig(:arenas, 0, :uptime_ns), arenas.dig(:merged, :active_bytes),
                 arenas.dig(:arenas, 0, :mutexes, :base, :operations), classes.dig(:classes, 2048, :allocations),
                 classes.dig(:classes, 2048, :slabs)]
      puts JSON.generate(changes.map { |change| [change.counter? || false, change.change.positive?] })
    RUBY

    assert_equal [[true, true], [false, true], [true, true], [true, true], [false, true]], told
  end

  def test_the_cost_is_of_the_tier_that_is_declared
    skip_under_sanitizer
    script = "puts [Memscope.arenas, Memscope.size_classes].map { |reading| reading.cost.tier.to_s }.inspect"

    assert_equal %w[T1 T1], child_json(script, preload: JEMALLOC)
    assert_equal %w[T2 T1], child_json(script)
  end

  def test_labels_and_levels
    read = lambda do |allocator|
      arenas = [{ index: 0, dirty_bytes: 5 }, { index: 8, huge: true, threads: 2 }]
      Memscope::Arenas.capture(allocator: allocator, arenas: arenas, merged: {}, reasons: {}, cost: Bodies.cost)
    end
    jemalloc = read.call(:jemalloc)
    glibc = read.call(:glibc)

    assert_equal(["0", "huge 8", "all"], [*jemalloc, jemalloc.merged].map { |arena| jemalloc.label(arena) })
    assert_equal "main", glibc.label(glibc.first)
    assert_equal({ dirty_bytes: { 0 => 5 }, threads: { 8 => 2 } }, jemalloc.levels)
    assert_empty Memscope::Arena::COLUMNS.values.flat_map(&:values) - Memscope::Arena.fields.map(&:name)
  end

  def test_lookup
    arenas = Memscope::Arenas.capture(allocator: :jemalloc, arenas: [{ index: 0 }, { index: 8, huge: true }],
                                      reasons: {}, cost: Bodies.cost)

    assert_equal [0, 8], arenas.map(&:index)
    assert_equal 2, arenas.each.size
    assert_predicate arenas[8], :huge?
    assert_match(/\AMemscope::Arenas has no 3; allowed: 0, 8\z/, assert_raises(KeyError) { arenas[3] }.message)
  end

  def test_an_allocator_that_tells_nothing
    mimalloc = Dir["/usr/lib/*/libmimalloc.so*"].min
    skip_under_sanitizer
    skip "mimalloc is not installed" unless mimalloc
    arenas, classes, fragmentation = child_json(<<~RUBY, preload: mimalloc, requires: ["json"])
      puts JSON.generate([Memscope.arenas.to_h, Memscope.size_classes.to_h, Memscope.fragmentation.to_h])
    RUBY

    assert_equal ["mimalloc", [], nil], arenas.values_at("allocator", "arenas", "merged")
    assert_match(/no statistics that memscope reads/, arenas.dig("reasons", "arenas"))
    assert_match(/no statistics that memscope reads/, classes.dig("reasons", "classes"))
    assert_nil fragmentation["purgeable_bytes"]
    assert_match(/no statistics that memscope reads/, fragmentation.dig("reasons", "allocator"))
    assert_operator fragmentation["rss_bytes"], :positive?
  end

  # The reading leaves neither memory nor a descriptor behind.
  # jemalloc returns what is free at once, or RSS would depend on how long ago it has last done so.
  both_allocators "repeated readings leave nothing behind" do |preload|
    env = { "MALLOC_CONF" => "dirty_decay_ms:0,muzzy_decay_ms:0" }
    grown, descriptors = child_json(<<~RUBY, preload: preload, env: env)
      read = -> { 15.times { Memscope.arenas; Memscope.size_classes }; GC.start }
      5.times { read.call }
      before, open = Memscope.rss, Dir.children("/proc/self/fd").size
      5.times { read.call }
      puts [Memscope.rss - before, Dir.children("/proc/self/fd").size - open].inspect
    RUBY

    assert_operator grown, :<, 2 << 20 unless ChildProcess::SANITIZER # which keeps freed blocks for a while

    assert_equal 0, descriptors
  end

  both_allocators "is read while threads allocate and die" do |preload|
    assert child_json(<<~RUBY, preload: preload, requires: ["memscope_test"])
      Host.start_churning(3)
      threads = Array.new(4) { Thread.new { 5.times { Memscope.arenas.sum(&:index) } } }
      15.times { Memscope.size_classes; Memscope.arenas }
      3.times { Memscope.fragmentation }
      threads.each(&:join)
      Host.stop_churning
      puts true
    RUBY
  end

  both_allocators "a forked child reads its own" do |preload|
    assert child_json(<<~RUBY, preload: preload)
      Memscope.arenas
      pid = fork { exit!(Memscope.arenas.pid == Process.pid && Memscope.fragmentation.rss_bytes.positive? ? 0 : 1) }
      puts Process.wait2(pid).last.success?
    RUBY
  end
end
