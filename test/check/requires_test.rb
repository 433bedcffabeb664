# frozen_string_literal: true

require_relative "../test_helper"

# Requires as a value: sums, gems and comparisons, of runs made up by hand.
class RequiresTest < MemscopeTest
  FIELDS = %i[id parent path gem lazy objects_bytes malloc_bytes mapped_bytes].freeze
  # The program requires a, whose file requires b and a's own part; b's constant loads late; set.rb requires b again.
  NODES = [
    [0, nil, "main.rb", nil, false, 100, 10, 0],
    [1, 0, "/gems/a-1/lib/a.rb", "a", false, 1000, 200, 0],
    [2, 1, "/gems/b-1/lib/b.rb", "b", false, 3000, 500, 4096],
    [3, 1, "/gems/a-1/lib/a/part.rb", "a", false, 400, 0, 0],
    [4, 0, "/gems/b-1/lib/b/late.rb", "b", true, 50, -20, 0],
    [5, 0, "/usr/lib/ruby/set.rb", "ruby", false, 0, 7, 0],
    [6, 5, "elsewhere.rb", nil, false, 1, 1, 0]
  ].freeze

  def nodes
    NODES.map { |values| { **FIELDS.zip(values).to_h, objects: 1 } }
  end

  def reading(more_objects: 0, nodes: self.nodes, again: [[5, 2]])
    nodes[1][:objects_bytes] += more_objects
    objects, malloc = %i[objects_bytes malloc_bytes].map { |name| nodes.sum { |node| node[name] } + 5 }
    Memscope::Requires.capture(
      { program: "main.rb", allocator: "glibc 2.36", yjit: false, bootsnap: false, objects_bytes: objects,
        malloc_bytes: malloc, mapped_bytes: 8192, other_objects_bytes: 5, other_malloc_bytes: 5,
        other_mapped_bytes: 4096, load_path: [], nodes: nodes, reasons: {}, cost: Memscope::Cost.of(:T3),
        gems: Memscope::Requires.gems(nodes.map { |node| Memscope::Requires::Node.capture(node.dup) }, again) }
    )
  end

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

  # The costly file is the innermost one.
  def test_the_page_of_files_that_require_each_other_very_deeply
    files = nodes.first(2) + Array.new(4_999) { |index| { **nodes[1], id: index + 2, parent: index + 1 } }
    files.last[:objects_bytes] = 5 << 20

    text = reading(nodes: files, again: []).to_s(limit: 1)

    assert_match(%r{^ +5\.0 +5\.0  a: /gems/a-1/lib/a\.rb \(from /gems/a-1/lib/a\.rb\)$}, text)
  end

  def test_the_page_in_ascii
    text = reading.to_s(unicode: false, width: 60)

    assert_predicate text, :ascii_only?
    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 60
    assert_includes text.gsub(/\s+/, " "), "6 files, 1 of them by autoload; 110 B outside, 10 B of no file"
    assert_match(/^ +0\.0 +0\.0  ruby: .*set\.rb$/, text)
    assert_match(/^ +0\.0 +0\.0  b: .*late\.rb \(lazy\)$/, text)
  end
end
