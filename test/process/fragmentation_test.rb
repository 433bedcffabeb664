# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"
require_relative "../support/printed_by_malloc"

class FragmentationTest < MemscopeTest
  include PrintedByMalloc

  parallelize_me!

  # The reading makes a few objects before it reads malloc's numbers, so both may differ by up to 64 KiB.
  def test_jemallocs_fragmentation_is_what_it_prints
    printed, reading = described("fragmentation", preload: JEMALLOC, env: ManyArenas::JEMALLOC)
    stats = printed["stats"]
    merged = printed.dig("stats.arenas", "merged")
    page = printed.dig("arenas", "page")
    classes = printed.dig("arenas", "bin").zip(merged["bins"]).map { |bin, counts| small_class(bin, counts) }

    assert_in_delta stats["allocated"] - PRINTING_BYTES, reading["allocated_bytes"], 65_536
    assert_in_delta stats["active"] + (merged["pdirty"] * page),
                    reading["active_bytes"] + reading["purgeable_bytes"], 65_536
    assert_in_delta stats["resident"], reading["resident_bytes"], 2 * PRINTING_BYTES
    assert_operator reading["purgeable_bytes"], :>, 1_000_000
    assert_in_delta classes.sum { |one| one["slack_bytes"] }, reading["stuck_bytes"], 65_536
    assert_stuck classes, reading["stuck"]
  end

  # The classes with the most slack; of those whose slack differs by less than both readings may, any.
  def assert_stuck(classes, stuck)
    fifth = classes.map { |one| one["slack_bytes"] }.max(5).last
    by_size = classes.to_h { |one| [one["size_bytes"], one] }

    assert_equal(stuck.map { |one| one["stuck_bytes"] }.sort.reverse, stuck.map { |one| one["stuck_bytes"] })
    assert_operator stuck.size, :>=, 5
    stuck.first(5).each do |one|
      expected = by_size.fetch(one["size_bytes"])

      assert_operator expected["slack_bytes"], :>=, fifth - 65_536
      assert_in_delta expected["slack_bytes"], one["stuck_bytes"], 65_536
      assert_in_delta expected["regions_in_use"].fdiv(expected["regions"]), one["utilisation"], 0.01
    end
  end

  # 40 MB freed between blocks that stay: some whole pages, some not.
  def test_glibcs_fragmentation_forecasts_a_trim
    skip_under_sanitizer
    forecast, returned, stuck, left = child_json(<<~RUBY, requires: ["memscope_test"])
      kept = Array.new(20_000) { |i| "x" * (i % 20 == 0 ? 30_000 : 600) }
      kept = kept.each_with_index.select { |_, i| i % 3 == 0 }.map(&:first)
      GC.start
      Memscope.fragmentation
      before = Memscope.fragmentation
      rss = Memscope.rss
      Host.malloc_trim
      returned = rss - Memscope.rss
      after = Memscope.fragmentation
      puts [before.purgeable_bytes, returned, before.stuck_bytes, after.stuck_bytes].inspect
    RUBY

    assert_operator forecast, :>, 5_000_000
    assert_in_delta forecast, returned, forecast * 0.05
    assert_in_delta stuck, left, [stuck * 0.1, 500_000].max
  end

  def test_numbers_of_two_epochs_are_said_to_be
    snapshot = Memscope::Snapshot.capture(jemalloc: { epoch: 7, allocated_bytes: 200, active_bytes: 400 }.freeze,
                                          reasons: {}, cost: Bodies.cost)
    classes = Memscope::SizeClasses.capture(allocator: :jemalloc, epoch: 8, classes: [], reasons: {}, cost: Bodies.cost)
    fragmentation = Memscope::Fragmentation.of_jemalloc(snapshot, classes)

    assert_in_delta 2.0, fragmentation.active_to_allocated
    assert_nil fragmentation.resident_to_active
    assert_match(/numbers may be from two/, fragmentation.reasons[:epoch])
  end
end
