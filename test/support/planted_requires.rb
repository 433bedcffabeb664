# frozen_string_literal: true

# Readings of a program's files and their costs, made by hand.
module PlantedRequires
  FIELDS = %i[id parent path gem lazy objects_bytes malloc_bytes mapped_bytes].freeze
  # The program requires a, whose file requires b and a's own part. b's constant loads late. set.rb requires b again.
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
end
