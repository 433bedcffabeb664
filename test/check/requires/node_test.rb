# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/planted_requires"

class RequiresNodeTest < MemscopeTest
  include PlantedRequires

  def test_bytes_are_those_of_objects_and_of_malloc_but_not_mapped
    nodes = reading.nodes

    assert_equal [110, 1200, 3500, 400, 30, 7, 2], nodes.map(&:bytes)
    assert_equal [4096, true], [nodes[2].mapped_bytes, nodes[4].lazy?]
    assert_equal [3530, 1600, 7, 2], reading.gems.map(&:bytes)
  end

  def test_a_file_that_frees_more_than_it_allocates
    assert_equal(-19, Memscope::Requires::Node.capture({ **nodes[4], objects_bytes: 1 }).bytes)
    assert_raises(ArgumentError) { Memscope::Requires::Node.from_h({ **reading.nodes[4].to_h, objects_bytes: -1 }) }
  end

  def test_gems_are_compared_by_what_they_cost
    change = (reading(more_objects: 9) - reading).dig(:gems, "a")

    assert_equal [:bytes, 9], [Memscope::Requires::GemCost.weight, change[:objects_bytes].change]
  end
end
