# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"
require "memscope/value/collection"

class CollectionTest < MemscopeTest
  class Part < Memscope::Record
    field :name, :symbol, false
    field :extra_bytes, :bytes, true, sparse: true
  end

  class List < Memscope::Reading
    field :parts_of_it, [Part], false, parts: true
    include Memscope::Collection
  end

  PARTS = [{ name: :right, extra_bytes: 5 }.freeze, { name: :left }.freeze].freeze

  def list = List.capture({ parts_of_it: PARTS.map(&:dup), reasons: {}, cost: Bodies.cost })

  def test_it_is_enumerable_over_its_parts
    assert_equal %i[right left], list.map(&:name)
    assert_equal [2, :right], [list.each.size, list.first.name]
    same = list

    assert_same(same, same.each { |part| part })
  end

  # Enumerable's to_h would need pairs.
  def test_it_is_a_reading_all_the_same
    assert_equal [{ name: :right, extra_bytes: 5 }, { name: :left }], list.to_h[:parts_of_it]
    assert_equal list, List.from_h(JSON.parse(list.to_json))
  end

  def test_there_is_always_a_list
    assert_raises(ArgumentError) { List.from_h({ **list.to_h, parts_of_it: nil }) }
  end
end
