# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require_relative "../../support/printed"
require "memscope/show/report"

class MallocReportTest < MemscopeTest
  include Printed

  MEBIBYTE = 1_048_576

  # An arena of jemalloc's in which every number is `mebibytes`.
  def arena(index, mebibytes, **given)
    { index: index, huge: false, threads: 3, dirty_decay_ms: 10_000, muzzy_decay_ms: 0,
      small_allocated_bytes: mebibytes * MEBIBYTE, large_allocated_bytes: 0, base_bytes: mebibytes * MEBIBYTE,
      internal_bytes: 0,
      **%i[active dirty muzzy retained tcache].to_h { |name| [:"#{name}_bytes", mebibytes * MEBIBYTE] },
      mutexes: { base: { operations: 9, waits: 0, wait_ns: 0 } }, **given }
  end

  def jemalloc(*arenas, **given)
    Memscope::Arenas.capture({ allocator: :jemalloc, epoch: 7, arenas: arenas, reasons: { name: "none" },
                               merged: arena(nil, 9), cost: Bodies.cost, **given })
  end

  def glibc(*arenas, **given)
    Memscope::Arenas.capture({ allocator: :glibc, arenas: arenas, merged: arenas.first.merge(index: nil), reasons: {},
                               mmapped_bytes: 5 * MEBIBYTE, mmapped_blocks: 3, cost: Bodies.cost, **given })
  end

  def test_arenas_of_jemalloc
    said = text(jemalloc(arena(0, 12), arena(8, 1, huge: true, dirty_decay_ms: 0)))

    assert_match(/^memscope .* jemalloc serves malloc - pid \d+ - epoch 7$/, said)
    assert_match(/^  +MiB  threads  allocated  active  dirty  muzzy  retained  metadata  caches$/, said)
    assert_match(/^  +0 +3( +12\.0){7}$/, said)
    assert_match(/^  huge 8 +3( +1\.0){7}$/, said)
    assert_match(/^  +all +3( +9\.0){7}$/, said)
    assert_includes said, "arena 0: unused pages stay dirty for 10 s, then muzzy for 0 s\n"
    assert_includes said, "arena 8: unused pages stay dirty for 0 s, then muzzy for 0 s\n"
    refute_includes said, "none"
  end

  def test_the_widest_numbers_fit_the_page
    widest = arena(4094, 99_999, threads: 4095, dirty_decay_ms: -1)

    assert_includes text(jemalloc(widest, merged: widest.merge(index: nil))), " 99,999.0 99,999.0 "
  end

  def test_a_decay_that_never_comes
    assert_includes text(jemalloc(arena(0, 1, dirty_decay_ms: -1))),
                    "all arenas: unused pages stay dirty forever, then muzzy for 0 s"
  end

  def test_arenas_of_glibc
    first = { index: 0, resident_bytes: 9 * MEBIBYTE, system_bytes: 10 * MEBIBYTE, system_max_bytes: 12 * MEBIBYTE,
              free_bytes: 6 * MEBIBYTE,
              free_blocks: 1234, fast_bytes: 0, fast_blocks: 0 }
    said = text(glibc(first, first.merge(index: 1, heaps: 2)))

    assert_match(/^  +main +- +9\.0 +4\.0 +6\.0 +0\.0 +10\.0 +12\.0 +1,234$/, said)
    assert_match(/^  +1 +2 +9\.0 /, said)
    assert_includes said, "plus 5.0 MiB in 3 blocks allocated directly with mmap"
    refute_includes said, "decay"
    assert_match(/4\.0 +6\.0 +- +10\.0 +12\.0 +1,234$/, text(glibc(first.except(:fast_bytes))))
    assert_match(/^  +main +- +- +4\.0 /, text(glibc(first.except(:resident_bytes))))
  end

  def test_no_arenas
    reading = Memscope::Arenas.capture(allocator: :musl, arenas: [], reasons: { arenas: "it has none" },
                                       cost: Bodies.cost)

    assert_match(/musl serves malloc.*\n\n  arenas: it has none\n\n  read in 24 ms/, text(reading))
  end

  def classes(*list, **given)
    Memscope::SizeClasses.capture({ allocator: :jemalloc, epoch: 7, classes: list, reasons: {}, cost: Bodies.cost,
                                    **given })
  end

  def test_size_classes
    said = text(classes({ kind: :small, size_bytes: 640, slab_bytes: 20_480, slab_regions: 32, slabs: 10_000,
                          partly_used_slabs: 9000, regions_in_use: 100_000, allocations: 1_000_000 },
                        { kind: :small, size_bytes: 8, slab_regions: 512, slabs: 0, regions_in_use: 0, allocations: 3 },
                        { kind: :large, size_bytes: 16_384, extents: 64, allocations: 90 }, arena: 4))

    assert_includes said, "  of arena 4\n"
    assert_match(/^  +640  100,000 +61\.0  10,000   9,000 +31 +134\.3  1,000,000$/, said)
    assert_match(/^  +16,384 +64 +1\.0 +90$/, said)
    assert_match(/^  +all  100,064 +62\.0  10,000 +31 +134\.3  1,000,090$/, said)
    refute_match(/^ +8 /, said)
  end

  # A year of a busy process with tens of GB.
  def test_many_allocations_stay_within_the_page
    said = text(classes({ kind: :small, size_bytes: 640, slab_bytes: 20_480, slab_regions: 32, slabs: 900_000,
                          partly_used_slabs: 900_000, regions_in_use: 28_000_000, allocations: 123_456_789_012 },
                        { kind: :large, size_bytes: 1 << 30, extents: 8, allocations: 90 }))

    assert_operator said.lines.map { |line| line.chomp.length }.max, :<=, 80
    assert_match(/ 123,456 M$/, said)
  end

  def test_no_size_classes
    assert_includes text(classes(allocator: :glibc, reasons: { classes: "it has none" })),
                    "\n  classes: it has none\n"
  end

  def fragmentation(**given)
    Memscope::Fragmentation.capture({ allocator: :jemalloc, epoch: 7, rss_bytes: 300 * MEBIBYTE,
                                      resident_bytes: 250 * MEBIBYTE, active_bytes: 200 * MEBIBYTE,
                                      allocated_bytes: 100 * MEBIBYTE, purgeable_bytes: 40 * MEBIBYTE,
                                      stuck_bytes: 90 * MEBIBYTE, stuck: [], reasons: {}, cost: Bodies.cost, **given })
  end

  def test_fragmentation
    said = text(fragmentation)

    assert_match(%r{^   2\.00  active / allocated: 200\.0 MiB / 100\.0 MiB$}, said)
    assert_match(/^ +40\.0  returned by the lever purge$/, said)
    assert_match(/^ +90\.0  stuck until whole slabs become free, or until a restart$/, said)
  end

  def test_what_is_not_known_of_fragmentation
    said = text(fragmentation(active_bytes: nil, allocator: :glibc, purgeable_bytes: nil,
                              reasons: { deep: "no room" }))

    refute_includes said, "active"
    assert_match(/^ +-  returned by the lever/, said)
    assert_match(/^ +90\.0  stuck until whole pages become free/, said)
    assert_includes said, "  deep: no room\n"
  end

  both_allocators "real ones fit the page" do |preload|
    longest = child_json(<<~RUBY, preload: preload)
      threads = Array.new(8) { Thread.new { Array.new(2000) { "x" * rand(3000) }.select { rand < 0.3 } } }
      kept = threads.map(&:value)
      texts = [Memscope.arenas, Memscope.size_classes, Memscope.fragmentation].map(&:to_s)
      puts texts.map { |text| text.lines.map { |line| line.chomp.length }.max }.max
    RUBY

    assert_operator longest, :<=, 80
  end
end
