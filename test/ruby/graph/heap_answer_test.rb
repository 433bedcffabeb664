# frozen_string_literal: true

require_relative "../../test_helper"

# What the answer of a heap graph has, beyond the graph.
class HeapAnswerTest < MemscopeTest
  parallelize_me!

  # A chain in which paths have up to 64 steps, with names and edges of 512 bytes.
  LONG = <<~RUBY
    classes = Array.new(5) { |index| Object.const_set("L\#{index}".ljust(512, "g"), Class.new) }
    edge = "@".ljust(512, "e")
    KEPT = 500.downto(1).reduce(nil) do |to, index|
      one = classes[index % 5].new
      one.instance_variable_set(edge, to)
      one.instance_variable_set(:@text, "x" * 100)
      one
    end
  RUBY

  def test_a_large_answer_is_complete
    few, many, again = child_json(<<~RUBY, requires: %w[json memscope])
      #{LONG}
      graphs = [20, 400].map { |top| Memscope.heap_graph(top: top) }
      shown = graphs.map do |graph|
        lists = %i[retained garbage roots dominators paths].to_h { |name| [name, graph.public_send(name).size] }
        ends = graph.dominators.map { |row| [row.name.nil?, row.path.nil?, row.path&.steps&.any? { |step| step.name.nil? }] }
        long = graph.dominators.select { |row| row.name.end_with?("gg") }
        [graph.reachable_count, lists, long.first(3).map(&:retained_bytes), ends.uniq]
      end
      puts JSON.generate([*shown, Memscope::HeapGraph.from_h(graphs.last.to_h) == graphs.last])
    RUBY

    # How much more each retains than the next one; the sums depend on what is left on the stack, which is a root too.
    steps = [few, many].map { |shown| shown[2].each_cons(2).map { |one, next_one| one - next_one } }

    assert_equal steps.first, steps.last
    assert_operator many[0], :>, 1_000
    assert_equal 400, many[1]["dominators"]
    assert_operator many[1]["paths"], :>, 100
    assert_equal [[false, false, false]], many[3]
    assert again
  end

  # No object holds the blocks of at_exit, nor finalizers; there are as many as a program makes.
  def test_what_accumulates_in_roots
    paths = child_json(<<~RUBY, requires: %w[json memscope])
      def remember(number)
        text = number.to_s * 4_000
        at_exit { text.size }
      end
      500.times { |number| remember(number) }
      graph = Memscope.heap_graph(top: 5)
      path = graph.paths.first
      puts JSON.generate([path.to_s, path.accumulated_bytes, path.held_class, path.held_count,
                          graph.roots.find { |root| root.name == "end_proc" }.retained_bytes])
    RUBY

    assert_equal ["(at_exit)", "Proc", 500], paths.values_at(0, 2, 3)
    assert_operator paths[1], :>, 500 * 4_000
    assert_in_delta paths[4], paths[1], 20_000, "one block may still be on the stack, which is another root"
  end

  # Keys of fiber-locals and thread-locals are shown if they are in the code: others may have been made from data.
  def test_keys_of_a_threads_variables
    shown = child_json(<<~RUBY, requires: %w[json memscope])
      Order = Struct.new(:text)
      def orders(count = 5_000) = Array.new(count) { |number| Order.new("canary \#{number}") }
      Thread.new do
        Thread.current.name = "importer"
        data = %w[canary_symbol canary_text]
        Thread.current[:in_code] = orders
        Thread.current[data.first.to_sym] = orders
        Thread.current[data.last] = orders
        300.times { |number| Thread.current[:"canary_\#{number}"] = orders(1) }
        Thread.current.thread_variable_set(:variable_in_code, orders)
        Thread.current.thread_variable_set(:one_of_two, nil)
        $ready = true
        sleep
      end
      Thread.new { 3.times { |at| Thread.current.thread_variable_set(:"canary_\#{at}", orders) }; $both = true; sleep }
      sleep(0.01) until $ready && $both && Thread.list.count { |one| one.status == "sleep" } == 2
      graphs = [Memscope.heap_graph, Memscope.heap_graph(paths_to: "Order", strings: true)]
      puts JSON.generate(graphs.map { |graph| [graph.paths.map(&:to_s), graph.to_json + graph.to_s] })
    RUBY
    thread = "(vm) → Ractor → Thread"
    found, asked = shown.map(&:first)

    assert_includes found, "#{thread} \"importer\" at -e:3 [:in_code] → Array"
    assert_includes found, "#{thread} \"importer\" at -e:3 → Hash [:variable_in_code] → Array"
    assert_includes found, "#{thread} at -e:3 [key] → Array"
    assert_includes found, "#{thread} at -e:15 → Hash {Symbol} → Array"
    assert_equal 1, asked.grep(/at -e:3 \[key\] → Array → Order/).size
    shown.map(&:last).each { |text| refute_match(/canary/i, text) }
  end

  # Alike are the paths through objects that the same line made; a name is shown where there is one thread.
  def test_the_lines_that_made_threads_fibers_and_procs
    found, held, threads, fibers = child_json(<<~RUBY, requires: %w[json memscope])
      module Bus; HANDLERS = []; PARKED = []; end
      def on(&block) = Bus::HANDLERS << block
      def handle(text) = on { text }
      def park(text) = Bus::PARKED << Fiber.new { Fiber.yield(text) }.tap(&:resume)
      300.times { |number| handle(number.to_s * 2_000) }
      50.times { |number| park(number.to_s * 2_000) }
      5.times.map { Thread.new { sleep } }.first.name = "first"
      Thread.pass until Thread.list.count { |thread| thread.status == "sleep" } == 5
      paths = -> (to) { Memscope.heap_graph(paths_to: to).paths.map { |path| [path.to_s, path.count] } }
      graph = Memscope.heap_graph
      puts JSON.generate([graph.paths.map { |path| [path.to_s, path.held_class, path.held_count, path.held_made_at] },
                          graph.dominators.map { |one| one.path.to_s }, paths.call("Thread"), paths.call("Fiber")])
    RUBY

    assert_includes found, ["Bus::HANDLERS → Array", "Proc", 300, "-e:3"]
    assert_includes found, ["Bus::PARKED → Array", "Fiber", 50, "-e:4"]
    refute_empty held
    assert_includes threads, ["(vm) → Ractor → Thread at -e:7", 5]
    assert_includes fibers, ["Bus::PARKED → Array → Fiber at -e:4", 50]
    assert_operator fibers.size, :<=, 2
  end

  def test_symbols_and_classes_are_counted
    symbols, classes, modules = child_json(<<~'RUBY', requires: %w[json memscope])
      module Registry; KNOWN = []; end
      module Messages; end
      20_000.times { |number| Thread.current["name_#{number}"] = nil }
      400.times { Registry::KNOWN << Class.new { 10.times { |number| define_method("m#{number}") { number } } } }
      400.times { |number| Messages.const_set("Kind#{number}", Struct.new(:first, :second)) }
      graph = Memscope.heap_graph
      held = ->(path) { [path.held_class, path.held_count] if path }
      puts JSON.generate([graph.paths.map(&held).find { |name, _count| name == "Symbol" },
                          held.call(graph.paths.find { |path| path.to_s == "Registry::KNOWN → Array" }),
                          held.call(graph.dominators.find { |one| one.path.to_s == "Messages" })])
    RUBY

    assert_equal ["Class", 400], classes
    assert_equal ["Class", 400], modules
    assert_equal "Symbol", symbols.first
    assert_in_delta 24_000, symbols.last, 4_000
  end

  # Classes of the same name, or without one, do not make paths differ.
  def test_anonymous_classes_are_alike
    paths = child_json(<<~RUBY, requires: %w[json memscope])
      class Schema; end
      class Order; end
      KEPT = Array.new(50) { Class.new(Schema).tap { |one| one.instance_variable_set(:@order, Order.new) } }
      module Kinds; end
      50.times do
        Kinds.send(:remove_const, :Old) if Kinds.const_defined?(:Old)
        Kinds.const_set(:Old, Class.new).instance_variable_set(:@order, Order.new)
        KEPT << Kinds::Old
      end
      puts JSON.generate(Memscope.heap_graph(paths_to: Order).paths.map { |path| [path.to_s, path.count] })
    RUBY

    assert_equal [["KEPT → Array → Schema (anonymous subclass) @order → Order", 50], ["Kinds::Old @order → Order", 50]],
                 paths.sort
  end
end
