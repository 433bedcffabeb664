# frozen_string_literal: true

require_relative "../test_helper"

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

  def test_an_answer_too_large_is_cut
    few, many, again = child_json(<<~RUBY, requires: %w[json memscope])
      #{LONG}
      graphs = [20, 400].map { |top| Memscope.heap_graph(top: top) }
      shown = graphs.map do |graph|
        lists = %i[retained garbage roots dominators paths].to_h { |name| [name, graph.public_send(name).size] }
        ends = graph.dominators.map { |row| [row.name.nil?, row.path.nil?, row.path&.steps&.any? { |step| step.name.nil? }] }
        long = graph.dominators.select { |row| row.name.end_with?("gg") }
        [graph.reachable_count, lists, graph.reasons[:lists], long.first(3).map(&:retained_bytes), ends.uniq]
      end
      puts JSON.generate([*shown, Memscope::HeapGraph.from_h(graphs.last.to_h) == graphs.last])
    RUBY

    assert_nil few[2]
    assert_equal "the last rows are missing, since an answer has room for 16 MiB: dominators", many[2]
    assert_equal few[3], many[3]
    assert_operator many[0], :>, 1_000
    assert_includes 200..399, many[1]["dominators"]
    assert_operator many[1]["paths"], :>, 100
    assert_equal [[false, false, false]], many[4]
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

    assert_equal ["(end_proc)", "Proc", 500], paths.values_at(0, 2, 3)
    assert_operator paths[1], :>, 500 * 4_000
    assert_equal paths[4], paths[1]
  end

  # A thread's name and the names of its locals are data.
  def test_paths_through_threads_show_no_names
    shown = child_json(<<~RUBY, requires: %w[json memscope])
      Order = Struct.new(:text)
      Thread.new do
        Thread.current.name = "canary thread"
        Thread.current[:canary_local] = Array.new(10_000) { |number| Order.new("canary \#{number}") }
        Thread.current.thread_variable_set(:canary_variable, Array.new(10_000) { Order.new("canary") })
        sleep
      end
      Thread.pass until ObjectSpace.each_object(Order).count == 20_000
      graphs = [Memscope.heap_graph, Memscope.heap_graph(paths_to: "Order", strings: true)]
      puts JSON.generate(graphs.map { |graph| [graph.paths.map(&:to_s), graph.to_json + graph.to_s] })
    RUBY

    shown.each do |paths, text|
      assert_includes paths.first(3).join, "Thread"
      refute_match(/canary/i, text)
    end
  end
end
