# frozen_string_literal: true

require_relative "../test_helper"

class LastReadingsTest < MemscopeTest
  REQUIRES = %w[json memscope/heap/last_readings].freeze

  def test_the_process_keeps_what_was_taken_in_it
    censuses, graphs, child = child_json(<<~RUBY, requires: REQUIRES)
      last = Memscope::LastReadings
      kept = ->(name) { Memscope::Runtime.current.kept(name) }
      censuses = [kept.call(:censuses).size]
      last.census
      censuses << kept.call(:censuses).size
      taken = [last.census, last.census(gc: true)]
      censuses << (kept.call(:censuses) == taken && taken.last.collected?)
      graph = -> { kept.call(:heap_graph).last }
      graphs = [graph.call]
      count = last.heap_graph.reachable_count
      graphs << (graph.call.reachable_count == count)
      last.heap_graph(paths_to: "String", strings: true)
      graphs << [graph.call.paths_to, graph.call.strings.count.positive?]
      graphs << begin
        last.heap_graph(paths_to: "")
      rescue ArgumentError
        graph.call.paths_to
      end
      reading, writing = IO.pipe
      fork { writing.write([kept.call(:censuses).size, graph.call].inspect); exit!(0) }
      writing.close
      puts JSON.generate([censuses, graphs, reading.read])
    RUBY

    assert_equal [0, 1, true], censuses
    assert_equal [nil, true, ["String", true], "String"], graphs
    assert_equal "[0, nil]", child
  end

  # Each graph takes memory of its own.
  def test_one_graph_at_a_time
    most, graphs = child_json(<<~RUBY, requires: REQUIRES)
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
      graphs = 3.times.map { Thread.new { Memscope::LastReadings.heap_graph } }.map(&:value)
      puts JSON.generate([most, graphs.count(&:known?)])
    RUBY

    assert_equal [1, 3], [most, graphs]
  end
end
