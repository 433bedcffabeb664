# frozen_string_literal: true

require_relative "../../test_helper"

# Graphs planted in a process of their own, with retained sizes computed by hand.
class HeapReferencesTest < MemscopeTest
  # Retained bytes by name, as the graph reports them and as sums of the objects' own sizes.
  PLANTED = <<~RUBY
    require "objspace"
    GC.disable
    Node = Struct.new(:first, :second, :name)
    def node(first = nil, second = nil) = Node.new(first, second, "name " * 40)
    # A stale word of a stack may hold the array that is given, so it becomes empty.
    def size(objects) = objects.sum { |object| ObjectSpace.memsize_of(object) }.tap { objects.clear }
    def whole(nodes)
      nodes.sum { |node| ObjectSpace.memsize_of(node) + ObjectSpace.memsize_of(node.name) }.tap { nodes.clear }
    end

    class Listed; @all = []; class << self; attr_reader :all; end; def initialize = @text = "text " * 40; end
    KEPT = Object.new
    VARIABLES = RUBY_VERSION < "4" ? 0 : 40 # the slot of an internal object that holds a String's variables
    # On a stack that ends: nothing else may hold the parts.
    expected = Thread.new do
      chain = [node]
      4.times { chain.unshift(node(chain.first)) }
      leaves = [node, node, node, node]
      twigs = [node(*leaves.first(2)), node(*leaves.last(2))]
      tree = node(*twigs)
      bottom = node
      sides = [node(bottom), node(bottom)]
      diamond = node(*sides)
      counted = "text " * 40
      counted.instance_variable_set(:@note, "note " * 40)
      counting = [counted]
      instances = Array.new(50) { Listed.new.tap { |one| Listed.all << one } }
      texts = instances.map { |one| one.instance_variable_get(:@text) }
      list = nil
      2000.times { list = node(list) }
      nodes = [list].tap { |all| all << all.last.first while all.last.first }

      expected = { chain: whole([*chain]),
                   tree: whole([tree, *twigs, *leaves]),
                   diamond: whole([diamond, *sides, bottom]),
                   ivar_on_string: size([counting, counted, counted.instance_variable_get(:@note)]) + VARIABLES,
                   instances: size([Listed.all, *instances, *texts]),
                   list: whole([*nodes]) }
      kept = { chain: chain.first, tree: tree, diamond: diamond,
                ivar_on_string: counting, instances: Listed.all, list: list }
      kept.each { |name, object| KEPT.instance_variable_set(:"@\#{name}", object) }
      [chain, leaves, twigs, sides, instances, texts, nodes].each(&:clear) # a stale word may hold one of them
      expected
    end.value
    names = expected.keys
  RUBY

  def test_retained_bytes_are_those_by_hand
    found = child_json(<<~RUBY, requires: %w[json])
      #{PLANTED}
      found = names.to_h do |name|
        [name, Memscope.heap_graph(paths_to: KEPT.instance_variable_get(:"@\#{name}"), top: 1).paths.first.retained_bytes]
      end
      puts JSON.generate(found: found, expected: expected)
    RUBY

    assert_equal found["expected"], found["found"]
  end

  def test_what_only_a_stack_holds_is_no_garbage
    found = child_json(<<~RUBY, requires: %w[json])
      GC.disable
      class OfThread; end
      class OfFiber; end
      class OfBlock; end
      class Dropped; end
      class Weakly; end
      def held(kind) = kind.new
      WEAK = ObjectSpace::WeakMap.new
      started = Queue.new
      thread = Thread.new { mine = held(OfThread); started << 1; sleep; mine }
      started.pop
      fiber = Fiber.new { mine = held(OfFiber); Fiber.yield; mine }
      fiber.resume
      enumerator = Enumerator.new { |out| mine = held(OfBlock); out << 1; mine }
      enumerator.next
      define_method(:drop) { 100.times { held(Dropped) } ; 100.times { WEAK[held(Weakly)] = 1 }; nil }
      drop
      counts = %w[OfThread OfFiber OfBlock Dropped Weakly].to_h do |name|
        graph = Memscope.heap_graph(paths_to: name, top: 1)
        [name, [graph.target_count, graph.unreachable_target_count]]
      end
      puts JSON.generate(counts)
    RUBY

    assert_equal [[1, 0]] * 3, found.values_at("OfThread", "OfFiber", "OfBlock")
    found.values_at("Dropped", "Weakly").each do |reachable, garbage|
      assert_equal 100, reachable + garbage
      assert_operator garbage, :>=, 97 # the stack may still have the last ones
    end
  end

  def test_counts_are_those_of_the_census_and_garbage_is_what_a_collection_frees
    found = child_json(<<~RUBY, requires: %w[json])
      Memscope.heap_graph(top: 1).to_h # the first one makes objects that stay
      GC.start
      GC.disable
      20_000.times { |number| "garbage \#{number} " * 10 }
      $kept = Array.new(20_000) { |number| "kept \#{number} " * 10 }
      graph = Memscope.heap_graph(top: 1)
      slots = Memscope.ruby_heap.live_slots
      GC.start
      GC.disable
      left = Memscope.heap_graph(top: 1)
      puts JSON.generate(first: graph.to_h, left: left.to_h, slots: slots)
    RUBY
    first, left = found.values_at("first", "left")

    assert_in_delta found["slots"], first["reachable_count"] + first["garbage_count"], 1000
    assert_equal "String", first.dig("garbage", 0, "name")
    assert_operator first.dig("garbage", 0, "count"), :>=, 20_000
    assert_operator left["garbage_count"], :<, 1000
    assert_in_delta first["reachable_count"], left["reachable_count"], 500
  end

  def test_the_same_graph_in_the_process
    graphs = child_json(<<~RUBY, requires: %w[json])
      graphs = -> { [:fork, :process].map { |place| Memscope.heap_graph(top: 3, in: place).to_h } }
      graphs.call # the first ones make objects that stay
      GC.start
      GC.disable
      $kept = Array.new(5_000) { |number| [number, "kept \#{number} " * 10] }
      puts JSON.generate(graphs.call)
    RUBY
    child, process = graphs

    assert_equal %w[child process], [child["walked_in"], process["walked_in"]]
    assert_equal child.dig("paths", 0, "steps"), process.dig("paths", 0, "steps")
    assert_in_delta child["reachable_bytes"], process["reachable_bytes"], 50_000
    assert_nil process["child_bytes"]
    assert_operator child["child_bytes"], :>, 0
  end
end
