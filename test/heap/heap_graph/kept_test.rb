# frozen_string_literal: true

require_relative "../../test_helper"

class KeptHeapGraphTest < MemscopeTest
  def test_the_last_one_is_kept_by_the_process_that_took_it
    none, taken, asked, child, left = child_json(<<~RUBY, requires: %w[json memscope])
      kept = Memscope::HeapGraph::Kept
      graph = -> { Memscope::Runtime.current.kept(:heap_graph).last }
      seen = [graph.call]
      count = kept.take.last.reachable_count
      seen << (graph.call.reachable_count == count)
      kept.take(paths_to: "String", strings: true)
      seen << [graph.call.paths_to, graph.call.strings.count.positive?]
      reading, writing = IO.pipe
      fork { writing.write(graph.call.inspect); exit!(0) }
      writing.close
      seen << reading.read
      refused = begin
        kept.take(paths_to: "")
      rescue ArgumentError
        graph.call.paths_to
      end
      puts JSON.generate([*seen, refused])
    RUBY

    assert_equal [nil, true, ["String", true], "nil", "String"], [none, taken, asked, child, left]
  end

  # Each graph takes memory of its own.
  def test_one_at_a_time
    most, graphs = child_json(<<~RUBY, requires: %w[json memscope])
      running = most = 0
      native = Memscope.const_get(:Native)
      original = native.method(:heap_graph)
      native.define_singleton_method(:heap_graph) do |*arguments|
        most = [most, running += 1].max
        Thread.pass
        original.call(*arguments)
      ensure
        running -= 1
      end
      graphs = 3.times.map { Thread.new { Memscope::HeapGraph::Kept.take } }.map(&:value)
      puts JSON.generate([most, graphs.flatten.count(&:known?)])
    RUBY

    assert_equal [1, 3], [most, graphs]
  end
end
