# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require "memscope/process/ruby_heap/garbage"

# The arithmetic of what objects own, on made-up answers of the extension; test/ruby/heap/object_blocks_test.rb has real
# ones.
class RubyHeapBlocksTest < MemscopeTest
  Blocks = Memscope::RubyHeap::Blocks
  NOTHING = { objects: 0, slot_bytes: 0, blocks: 0, block_bytes: 0, absent_bytes: 0,
              unfollowed_objects: 0, unfollowed_bytes: 0 }.freeze

  def owned(**given) = { **NOTHING, **given }

  def returned(bytes, most, own = nil, own_most = nil)
    { bytes: bytes, max_bytes: most, private_bytes: own, private_max_bytes: own_most }
  end

  def blocks(**given)
    Blocks.capture({ all: owned(block_bytes: 700, unfollowed_bytes: 200),
                     garbage: owned(slot_bytes: 40, block_bytes: 100), unfollowed: [], unowned_bytes: 300,
                     finished_gc: false, heap_pages: returned(10, 20, 5, 20), at_once: returned(30, 40, 30, 35),
                     in_all: returned(50, 90, 50, 80), reasons: {}, cost: Bodies.cost, **given })
  end

  def bounds(returned) = [returned.range, returned.private_range]

  def test_what_a_collection_returns_and_what_a_trim_returns_after_it
    assert_equal [40..60, 35..55], bounds(blocks.returned_by_gc)
    assert_equal [20..50, 20..45], bounds(blocks.returned_after_gc)
    assert_equal [60..110, 55..100], bounds(blocks.returned)
  end

  # The GC may return a large part by itself, or leave it to the trim after it.
  def test_bounds_that_differ_by_more_than_their_sum_are_in_order
    either = blocks(at_once: returned(0, 45, 0, 40), in_all: returned(50, 60, 50, 55))

    assert_equal [15..50, 15..50], bounds(either.returned_after_gc)
    assert_equal [10..65, 5..60], bounds(either.returned_by_gc)
  end

  def test_bounds_are_unknown_without_an_answer
    assert_nil blocks(in_all: nil).returned
    assert_equal [40..60, nil], bounds(blocks(at_once: returned(30, 40)).returned_by_gc)
  end

  # Garbage of C extensions may own more than it reports, but no more than no object is known to own.
  def test_what_extensions_do_not_report_widens_the_upper_bounds
    kinds = [{ name: "Arena", objects: 3, garbage: 1 }, { name: "code", objects: 9, garbage: 4 },
             { name: "Idle", objects: 2, garbage: 0 }]
    wide = blocks(unfollowed: kinds)

    assert_equal 300, wide.uncounted_bytes
    assert_equal [40..360, 35..355], bounds(wide.returned_by_gc)
    assert_equal [140, 440], [wide.garbage_bytes, wide.garbage_max_bytes]
    assert_equal "4 code, 1 Arena", wide.unfollowed_names
    assert_equal 8_192, blocks(unfollowed: kinds, unowned_bytes: 1 << 20).uncounted_bytes
    assert_nil blocks.unfollowed_names
  end

  def test_objects_that_report_more_than_malloc_has_in_use
    assert_equal [false, 900], [blocks.overstated?, blocks.held_by_objects_bytes]
    few = blocks(unowned_bytes: 100)

    assert_equal [true, 700], [few.overstated?, few.held_by_objects_bytes]
  end
end
