# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require "memscope/process/ruby_heap/compaction_forecast"

# The arithmetic of forecasts, on made-up heaps; test/acceptance has real ones.
class CompactionForecastTest < MemscopeTest
  PAGE = 16_384

  # 1000 pages of 400 slots, a tenth of them live, and at most 5 pages pinned.
  def heap(ruby: "3.1.4", live: 40_000, compactable: 900, **given)
    sizes = { slots: 400_000, live_slots: live, pages: 1000, compactable_min_bytes: (compactable - 5) * PAGE,
              compactable_bytes: compactable * PAGE, pinned_pages_min: 0, pinned_pages_max: 5 }
    body = { page_bytes: PAGE, empty_pages: 0, old_objects: live, allocatable_pages: 0, free_slots_max_ratio: 0.65,
             free_slots_floor: 10_000, collected: true, **sizes, slot_sizes: [{ slot_size: 40, **sizes }], reasons: {},
             cost: Bodies.cost, **given }
    Memscope::RubyHeap.from_h(Memscope::RubyHeap.capture(body).to_h.merge(ruby: ruby))
  end

  def pages(...) = forecast(...).range&.then { |range| [range.begin / PAGE, range.end / PAGE] }

  def reason(...) = forecast(...).reason

  def test_by_the_ratio_that_ruby_keeps_free
    assert_equal [700, 715], pages(allocatable_pages: 0)
    assert_equal [880, 900], pages(allocatable_pages: 300)
  end

  def test_by_the_settings_of_that_rule
    assert_equal [852, 867], pages(free_slots_max_ratio: 0.25)
    assert_equal [585, 600], pages(free_slots_floor: 120_000)
  end

  def test_fuller_than_the_ratio
    assert_equal [0, 0], pages(live: 200_000, compactable: 500)
  end

  def test_ruby_3_3_returns_what_can_be_compacted
    assert_equal [890, 900], pages(ruby: "3.3.8", allocatable_pages: 0)
    assert_equal [490, 500], pages(ruby: "3.3.8", live: 200_000, compactable: 500)
  end

  def test_ruby_3_4_keeps_a_number_of_slots
    assert_equal [855, 900], pages(ruby: "3.4.1", allocatable_pages: nil)
  end

  def test_pages_that_are_empty_already
    assert_equal [990, 1000], pages(ruby: "3.3.8", empty_pages: 100)
  end

  def test_little_is_no_promise
    assert_equal [0, 40], pages(ruby: "3.3.8", live: 384_000, compactable: 40)
  end

  def test_garbage_widens_the_range_until_it_is_none
    assert_equal [890, 975], pages(ruby: "3.3.8", old_objects: 10_000, collected: false)
    assert_match(/\A290000 of 300000 live slots may be garbage, so collect garbage first\z/,
                 reason(ruby: "3.3.8", live: 300_000, compactable: 250, old_objects: 10_000, collected: false))
  end

  # A compaction frees them first; until then, which they are is not known.
  def test_old_objects_that_are_garbage_are_not_in_the_range
    ledger = Memscope::Ledger.capture(Bodies.ledger)
    uncollected, collected = [false, true].map do |collect|
      heap = heap(ruby: "3.3.8", collected: collect)
      Memscope::Purge.const_get(:Forecast).of(:compact, ledger, collect: collect, heap: heap)
    end

    assert_equal uncollected.bytes, collected.bytes
    assert_match(/old objects count as live, and if many of them are garbage, more is returned/, uncollected.reason)
    refute_match(/garbage/, collected.reason.to_s)
  end

  def test_pins_that_may_or_may_not_be
    assert_match(/\A200 to 700 of 1000 pages hold objects that cannot be moved/,
                 reason(ruby: "3.3.8", compactable_min_bytes: 300 * PAGE, compactable_bytes: 800 * PAGE,
                        pinned_pages_min: 200, pinned_pages_max: 700))
  end

  def test_nothing_is_forecast_of_a_heap_that_is_not_compacted
    assert_match(/\AGC\.compact can crash Ruby 3\.1\.2 /, reason(ruby: "3.1.2"))
    assert_match(/\AGC\.compact can crash Ruby 3\.2\.0 /, reason(ruby: "3.2.0", pages: nil))
  end

  def test_what_is_not_known
    assert_match(/3\.2\.9 returns was not measured/, reason(ruby: "3.2.9"))
    assert_match(/4\.1\.0 returns was not measured/, reason(ruby: "4.1.0"))
    assert_equal "no heap pages could be listed", reason(pages: nil)
    assert_equal "other Ractors", reason(compactable_min_bytes: nil, reasons: { pinned_pages_max: "other Ractors" })
    assert_nil forecast(ruby: "3.2.9").range
  end

  def test_what_collections_return_of_empty_pages
    returned = ->(**given) { forecast(**given).returned_of_empty(900 * PAGE) / PAGE }

    assert_equal [715, 0, 900], [returned.call, returned.call(live: 200_000), returned.call(ruby: "3.3.8")]
  end

  private

  def forecast(...) = Memscope::RubyHeap::CompactionForecast.new(heap(...))
end
