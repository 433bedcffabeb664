# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/planted_requires"

# Requires as a value: sums, gems and comparisons, of runs made up by hand.
class RequiresTest < MemscopeTest
  include PlantedRequires

  def gem(name, of = reading) = of.gems.find { |gem| gem.name == name }

  def test_costs_with_what_a_file_required
    program, a, b, part, late = reading.nodes

    assert_equal([5249, 5100, 3500, 400, 30], [program, a, b, part, late].map { |node| reading.inclusive_bytes(node) })
    assert_equal reading.bytes, reading.inclusive_bytes(program) + 10
  end

  def test_gems
    assert_equal %w[b a ruby (elsewhere)], reading.gems.map(&:name)
    figures = %i[objects_bytes malloc_bytes mapped_bytes files lazy_files]

    assert_equal([[3050, 480, 4096, 2, 1], [1400, 200, 0, 2, 0]],
                 %w[b a].map { |name| gem(name).to_h.values_at(*figures) })
    assert_equal([%w[a ruby], [], ["ruby"]], %w[b a (elsewhere)].map { |name| gem(name).required_by })
  end

  def test_json
    written = reading

    assert_equal written, Memscope::Requires.from_json(written.to_json)
    error = assert_raises(ArgumentError) { Memscope::Requires.from_h({ **reading.to_h, nodes: [{ id: -1 }] }) }

    assert_match(/nodes\[0\]/, error.message)
  end

  def test_a_gem_that_one_run_did_not_load_cost_nothing_in_it
    without_b = reading(nodes: nodes.values_at(0, 1).each_with_index.map { |node, id| { **node, id: id } }, again: [])
    difference = reading - without_b

    change = difference.dig(:gems, "b", :objects_bytes)

    assert_equal [0, 3050, 3050], [change.before, change.after, change.change]
    assert_equal(-3050, (without_b - reading).dig(:gems, "b", :objects_bytes).change)
    assert_equal 0, (reading - reading)[:objects_bytes].change
  end

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
