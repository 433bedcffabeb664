# frozen_string_literal: true

require_relative "../test_helper"
require "json"

class HeapGraphTest < MemscopeTest
  Path = Memscope::HeapGraph::Path

  def path(*steps, count: 1, left_out: 0)
    steps = steps.map { |name, edge, by, times| { name: name, edge: edge || :internal, by: by, times: times || 1 } }
    Path.capture({ count: count, retained_bytes: 1, steps: steps, steps_left_out: left_out })
  end

  def test_paths_in_words
    constant = ["Hash", :constant, "HANDLERS"]

    assert_equal "Bus::HANDLERS → Hash {Symbol} → Array", path(["Bus"], constant, ["Array", :value, "Symbol"]).to_s
    assert_equal "HANDLERS → Hash", path(["Object"], constant).to_s
    assert_equal "$log → Array [3] → Order",
                 path(["global_tbl"], ["Array", :global, "$log"], ["Order", :index, "3"]).to_s
    assert_equal "Shop @orders → Array → Order",
                 path(["Shop"], ["Array", :ivar, "@orders"], ["Order", :index, "0"], count: 2).to_s
    assert_equal "(vm) → Thread → Node ×2000", path(["vm"], ["Thread"], ["Node", :internal, nil, 2000]).to_s
    assert_equal "(vm) → Array → … 7 more → Hash → Order",
                 path(["vm"], ["Array"], ["Hash"], ["Order"], left_out: 7).to_s
  end

  def test_comes_back_from_json
    graph = Memscope.heap_graph(top: 3, strings: true)

    assert_equal graph, Memscope::HeapGraph.from_h(JSON.parse(graph.to_json))
    assert_equal 3, graph.retained.size
    assert_predicate graph, :known?
    assert_equal graph.strings.saved_bytes, [graph.strings.saved_bytes, graph.strings.duplicates.sum(&:saved_bytes)].max
  end

  def test_wrong_arguments
    { top: [0, 1001, "5", nil], strings: [nil, 1], in: [:thread, "fork"], deadline: [0, 4000, "1", nil],
      paths_to: [1, :Order, true, "", "a\0b"], upto: [1] }.each do |name, values|
      values.each do |value|
        error = assert_raises(ArgumentError, "#{name}: #{value.inspect}") { Memscope.heap_graph(name => value) }

        assert_match(/\AMemscope\.heap_graph: .*given .*, allowed: /, error.message)
      end
    end
  end

  def test_paths_to_objects_classes_modules_and_names
    found = child_json(<<~RUBY, requires: %w[json])
      module Sold; end
      class Order; include Sold; end
      class Special < Order; end
      ORDERS = [Order.new, Special.new, Class.new(Order).new]
      bare = BasicObject.new
      HELD = [bare]
      asked = [ORDERS.first, Order, Sold, Special, "Order", "Nobody", bare]
      puts JSON.generate(asked.map { |one| graph = Memscope.heap_graph(paths_to: one, top: 5)
                                           [graph.paths_to, graph.target_count, graph.paths.map(&:to_s).min] })
    RUBY

    assert_equal [["one Order", 1, "ORDERS → Array [0] → Order"], ["Order", 3, "ORDERS → Array [0] → Order"],
                  ["Sold", 3, "ORDERS → Array [0] → Order"], ["Special", 1, "ORDERS → Array [1] → Special"],
                  ["Order", 1, "ORDERS → Array [0] → Order"], ["Nobody", 0, nil],
                  ["one BasicObject", 1, "HELD → Array [0] → BasicObject"]], found
  end

  # Before Ruby 3.3, asking for the address of a young Array's elements moves them to malloc memory.
  def test_young_arrays_stay_where_they_are
    skip_without "fiddle"
    moved = child_json(<<~RUBY, requires: %w[json fiddle])
      class Order; end
      GC.disable
      KEPT = [Array.new(10) { Order.new }]
      words = -> { Fiddle::Pointer.new(Fiddle.dlwrap(KEPT.first))[0, 40].unpack("Q*") }
      before = words.()
      paths = Memscope.heap_graph(paths_to: Order, in: :process).paths.map(&:to_s)
      puts JSON.generate(moved: words.() != before, paths: paths)
    RUBY

    assert_equal({ "moved" => false, "paths" => ["KEPT → Array ×2 → Order"] }, moved)
  end

  def test_what_has_accumulated_is_of_all_alike
    found = child_json(<<~RUBY, requires: %w[json])
      class Keeper; def initialize = @list = Array.new(1_500) { Object.new }; end
      KEEPERS = Array.new(12) { Keeper.new }
      BIG = Array.new(6_000) { Object.new }
      paths = Memscope.heap_graph(top: 50).paths
      own = paths.chunk_while { |one, other| one.own? == other.own? }.map { |some| some.first.own? }
      puts JSON.generate([own, paths.reject(&:own?).map { |path| [path.to_s, path.count, path.accumulated_bytes,
                                                                  path.retained_bytes] }])
    RUBY
    own, found = found

    assert_equal [false, true], own
    alike = found.find { |text,| text == "KEEPERS → Array → Keeper @list → Array" }

    assert_equal 12, alike[1]
    assert_equal alike[3], alike[2]
    assert_operator alike[2], :>=, 12 * 1_500 * 40
    assert_operator found.index(alike), :<, found.map(&:first).index("BIG → Array")
    accumulated = found.map { |row| row[2] }

    assert_equal accumulated.sort.reverse, accumulated
  end

  # Strings are everywhere: the lowest String addresses do not lead to their main holder.
  def test_paths_that_hold_most_come_first
    graph = Memscope::HeapGraph.from_h(child_json(<<~RUBY, requires: %w[json memscope]))
      HOARD = Array.new(20_000) { |number| "kept \#{number} " * 40 }
      puts Memscope.heap_graph(paths_to: String, top: 5).to_json
    RUBY
    retained = graph.paths.reject(&:own?).map(&:retained_bytes)

    assert_equal "HOARD → Array → String", graph.paths.first.to_s
    assert_equal retained.sort.reverse, retained
  end

  # What a second holder also leads to counts with all that it retains, as it does in the holder's bytes.
  def test_what_is_held_where_no_holder_retains_it_alone
    graph = Memscope::HeapGraph.from_h(child_json(<<~RUBY, requires: %w[json memscope]))
      Shelf = Class.new
      Store = Class.new
      shared = Array.new(20) { ["x" * 100_000] }
      Shelf::ITEMS = [*shared, "y" * 5_000]
      Store.const_set(:ROOMS, { a: { b: { c: shared } } })
      shared = nil
      puts Memscope.heap_graph.to_json
    RUBY
    shelf = graph.paths.find { |path| path.to_s.start_with?("Shelf::ITEMS") }

    assert_equal ["Array", 20], [shelf.held_class, shelf.held_count]
  end

  def test_duplicate_strings_are_counted_and_not_shown
    graph = child_json(<<~RUBY, requires: %w[json])
      KEPT = Array.new(500) { "secret content " * 20 } + Array.new(10) { |n| "unlike \#{n} " * 20 }
      puts Memscope.heap_graph(top: 1, strings: true).to_json
    RUBY
    first = graph.dig("strings", "duplicates", 0)

    assert_equal ["String", 300, 500], first.values_at("name", "length", "count")
    assert_operator first["saved_bytes"], :>=, 499 * 300
    refute_includes graph.to_json, "secret"
  end

  def test_the_host_sees_nothing_of_the_child
    found = child_json(<<~RUBY, requires: %w[json])
      Memscope.heap_graph(top: 1) # opens what memscope keeps
      seen = []
      trap(:CHLD) { seen << 1 }
      system("true")
      before = [$?.pid, seen.size]
      descriptors = Dir.children("/proc/self/fd").size
      waiter = Thread.new { Process.wait(-1) rescue $!.class.name }
      5.times { Memscope.heap_graph(top: 1) }
      puts JSON.generate(same: before == [$?.pid, seen.size], waited: waiter.value,
                         descriptors: Dir.children("/proc/self/fd").size - descriptors,
                         gc: GC.enable, children: Dir["/proc/*/stat"].count { |f|
                           File.read(f).rpartition(")").last.split[1].to_i == Process.pid rescue false })
    RUBY

    assert_equal({ "same" => true, "waited" => "Errno::ECHILD", "descriptors" => 0, "gc" => false, "children" => 0 },
                 found)
  end

  def test_a_child_that_is_killed_or_too_slow_leaves_a_reason
    found = child_json(<<~'RUBY', requires: %w[json])
      $kept = Array.new(800_000) { |number| "kept #{number}" }
      slow = Memscope.heap_graph(top: 1, deadline: 0.1)
      killer = Thread.new do
        child = nil
        until child
          child = Dir["/proc/[0-9]*/stat"].find { |f| stat = (File.read(f) rescue ""); stat.include?("(memscope)") &&
                                                 stat.rpartition(")").last.split[1].to_i == Process.pid }
        end
        Process.kill(:KILL, child[/\d+/].to_i)
      end
      killed = Memscope.heap_graph(top: 1)
      killer.join
      puts JSON.generate(slow: [slow.known?, slow.reasons], killed: [killed.known?, killed.reasons],
                         again: Memscope.heap_graph(top: 1).known?)
    RUBY

    assert_equal [false, { "reachable_count" => "the child took longer than 0.1 s" }], found["slow"]
    assert_equal [false, { "reachable_count" => "the child ended before it answered" }], found["killed"]
    assert found["again"]
  end

  def test_beside_other_ractors_there_is_a_reason
    found = child_json(<<~RUBY, requires: %w[json])
      Warning[:experimental] = false
      ractor = Ractor.new { Ractor.receive }
      graph = Memscope.heap_graph
      puts JSON.generate([graph.known?, graph.reasons])
    RUBY

    assert_equal [false, { "reachable_count" => "other Ractors are alive: references of objects cannot be read" }],
                 found
  end

  def test_while_threads_allocate_and_the_heap_is_compacted_or_stressed
    found = child_json(<<~'RUBY', requires: %w[json])
      threads = Array.new(3) { Thread.new { loop { Array.new(100) { |number| "text #{number}" } } } }
      graphs = Array.new(2) { Memscope.heap_graph(top: 2) }
      threads.each(&:kill).each(&:join)
      GC.stress = true
      stressed = Memscope.heap_graph(top: 1, paths_to: "Nobody")
      GC.stress = false
      puts JSON.generate([*graphs, stressed].map { |graph| [graph.known?, graph.reasons.keys] })
    RUBY

    assert_equal [true], found.map(&:first).uniq, found
  end

  def test_many_graphs_leak_nothing
    found = child_json("GRAPHS = #{ENV.fetch('GRAPHS', 60)}\n#{<<~RUBY}", requires: %w[json])
      graph = -> { Memscope.heap_graph(top: 2, strings: true) }
      maps = -> { File.foreach("/proc/self/maps").count }
      10.times { graph.call }
      GC.start
      before = [Memscope.rss, maps.call, Dir.children("/proc/self/fd").size]
      GRAPHS.times { graph.call }
      GC.start
      puts JSON.generate(rss: Memscope.rss - before[0], maps: maps.call - before[1],
                         descriptors: Dir.children("/proc/self/fd").size - before[2])
    RUBY

    assert_operator found["rss"], :<, 3 << 20
    assert_operator found["maps"], :<, 8
    assert_equal 0, found["descriptors"]
  end
end
