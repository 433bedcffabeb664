# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/bodies"

class RubyHeapTest < MemscopeTest
  def heap(**given)
    Memscope::RubyHeap.capture({ page_bytes: 65_536, pages: 3, empty_pages: 1, slots: 4800, live_slots: 1200,
                                 free_slots: 3600, compactable_bytes: 131_072, gc_state: "none", reasons: {},
                                 slot_sizes: [{ slot_size: 40, pages: 3, slots: 4800, live_slots: 1200,
                                                free_slots: 3600, compactable_bytes: 131_072 }],
                                 cost: Bodies.cost, **given })
  end

  def test_derived_numbers
    assert_equal 4 * 65_536, heap.bytes
    assert_in_delta 0.25, heap.occupancy
    assert_in_delta 0.25, heap.slot_sizes.first.occupancy
  end

  def test_what_is_unknown_stays_so
    assert_equal 3 * 65_536, heap(empty_pages: nil).bytes
    assert_nil heap(pages: nil).bytes
    assert_nil heap(slots: nil, live_slots: nil).occupancy
    assert_nil heap(slots: 0, live_slots: 0).occupancy
  end

  def test_comes_back_from_json
    reading = heap

    assert_equal reading, Memscope::RubyHeap.from_h(JSON.parse(reading.to_json))
  end

  def test_slots_of_a_real_heap_add_up
    reading = Memscope.ruby_heap

    assert_equal reading.slots, reading.live_slots + reading.free_slots
    %i[pages slots live_slots free_slots].each do |name|
      assert_equal reading.public_send(name), reading.slot_sizes.sum(&name), name
    end
  end
end
