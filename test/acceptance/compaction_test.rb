# frozen_string_literal: true

require_relative "../test_helper"

# Fragmented heaps in real processes: what the passes return lies within the forecast.
class CompactionAcceptanceTest < MemscopeTest
  # Each test waits for a child process: two run at once on two processors.
  parallelize_me!

  WORKLOAD = File.join(ChildProcess::ROOT, "test/support/workloads/fragmented_heap.rb")
  VERSION = RUBY_VERSION.split(".").first(2).map(&:to_i)
  MEBIBYTE = 1_048_576
  PAGE = 65_536
  PAGE_SLOTS = GC::INTERNAL_CONSTANTS[:HEAP_PAGE_OBJ_LIMIT]
  # Before 3.3, Ruby frees pages only if enough of the slots are free (free_slots_max_ratio).
  BY_RATIO = (VERSION <=> [3, 3]).negative?

  def setup
    skip_without_compaction
    skip "what Ruby 3.2 returns was not measured" if VERSION == [3, 2]
    skip_under_sanitizer
  end

  { "every 10" => 0.6, "every 100" => 0.8, "random 5" => 0.3 }.each do |keep, share|
    name = "#{keep.tr(' ', '_')}_kept"
    tests = [define_method("test_objects_#{name}") { assert_returned("objects", keep, at_least: share) },
             define_method("test_slot_sizes_#{name}") { assert_inside("slot sizes", keep) }]
    only_in_full(tests) if keep == "every 100" # another share of the same
  end

  only_in_full def test_512_megabytes_of_objects
    assert_returned("objects", "every 10", at_least: 0.6, megabytes: 512)
  end

  only_in_full def test_512_megabytes_of_slot_sizes
    assert_inside("slot sizes", "random 5", megabytes: 512)
  end

  def test_half_full
    BY_RATIO ? assert_inside("objects", "every 2") : assert_returned("objects", "every 2", at_least: 0.4)
  end

  def test_half_full_where_ruby_keeps_more
    skip "goes by this setting before 3.3 only" unless BY_RATIO

    assert_nothing("objects", "every 2", env: { "RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO" => "0.8" })
  end

  def test_half_full_where_ruby_keeps_less
    skip "goes by this setting before 3.3 only" unless BY_RATIO

    assert_returned("objects", "every 2", at_least: 0.35, env: { "RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO" => "0.3" })
  end

  def test_free_slots_that_ruby_was_told_to_keep
    skip "goes by this setting before 3.3 only" unless BY_RATIO

    assert_inside("objects", "every 2", env: { "RUBY_GC_HEAP_INIT_SLOTS" => "600000" })
  end

  def test_dense
    assert_nothing("objects", "all")
    assert_nothing("slot sizes", "all")
  end

  def test_some_pages_pinned
    assert_returned("objects", "every 10, pinned #{PAGE_SLOTS / 4}", at_least: 0.3)
    assert_inside("objects", "every 20, pinned #{PAGE_SLOTS}")
  end

  def test_all_pages_pinned
    assert_nothing("objects", "every 10, pinned 10")
    assert_nothing("held by an extension", "every 10")
    # Since Ruby 4.0 only Ruby knows which symbols are pinned.
    (VERSION <=> [4, 0]).negative? ? assert_nothing("symbols", "every 10") : assert_held("symbols", "every 10")
  end

  # Before 3.2 a proc pins the environment that it captured.
  def test_procs
    BY_RATIO ? assert_nothing("procs", "every 10") : assert_returned("procs", "every 10", at_least: 0.6)
  end

  # Since 3.2, grown arrays need slots of another size, of which there are next to none.
  def test_grown_arrays
    BY_RATIO ? assert_inside("grown arrays", "every 10") : assert_held("grown arrays", "every 10")
  end

  # Nearly all pages are pinned. Before 3.2, how many of the others are emptied depends on the order of the pages.
  def test_finalizers
    assert_held("finalizers", "every 10")
  end

  private

  def fragmented(kind, keep, megabytes: 64, env: {})
    child_json("load #{WORKLOAD.dump}", timeout: 240,
                                        env: { "KIND" => kind, "KEEP" => keep, "MEGABYTES" => megabytes.to_s, **env })
  end

  def assert_returned(kind, keep, at_least:, **options)
    child = assert_inside(kind, keep, **options)

    assert_operator child["row"], :>, child["bytes"] * at_least, explained(child)
    assert_operator child.dig("forecast", "min_bytes"), :>, 0, explained(child)
  end

  def assert_nothing(kind, keep, **options)
    child = assert_inside(kind, keep, **options)

    assert_equal 0, child.dig("forecast", "min_bytes"), explained(child)
    assert_operator child.dig("forecast", "max_bytes"), :<=, child["bytes"] * 0.05, explained(child)
  end

  # The forecast is small, or missing because pages are pinned; the upper bound holds anyway.
  def assert_held(kind, keep)
    child = fragmented(kind, keep)
    most, reason = child["forecast"].values_at("max_bytes", "reason")

    assert_operator child["row"], :<=, child["compactable"], explained(child)
    if reason
      assert_match(/\A\d+ to \d+ of \d+ pages hold objects that cannot be moved\z/, reason)
    else
      assert_includes 0..most, child["row"], explained(child)
    end
  end

  # The result lies within the forecast, which is narrow; the rest of RSS changes by what malloc returns, and little
  # else.
  def assert_inside(kind, keep, **options)
    child = fragmented(kind, keep, **options)
    least, most = child["forecast"].values_at("min_bytes", "max_bytes")
    return child if allowed_to_be_unsaid?(child)

    assert_includes (least - PAGE)..most, child["row"], explained(child) # the reading itself may take a page more
    assert_operator child["row"], :<=, child["compactable"], explained(child)
    assert_operator most, :<=, [least * 1.5, child["bytes"] * 0.05].max, explained(child)
    assert_includes((least - MEBIBYTE)..((most * 1.06) + (4 * MEBIBYTE)), child["rss"], explained(child))
    child
  end

  # Ruby 3.4 keeps 50,000 free slots, which may be in any page.
  def allowed_to_be_unsaid?(child)
    (VERSION <=> [3, 4]) >= 0 && child.dig("forecast", "reason")&.include?("keeps free slots")
  end

  def explained(child) = JSON.generate(child.slice("forecast", "passes", "row", "rss", "bytes"))
end
