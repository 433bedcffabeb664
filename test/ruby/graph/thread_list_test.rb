# frozen_string_literal: true

require_relative "../../test_helper"

# A heap graph asks threads for their names, which may run the program's code.
class ThreadListTest < MemscopeTest
  parallelize_me!

  # The kill arrives while a method of a thread runs.
  def test_a_thread_that_is_killed_meanwhile_ends
    ended = child_json(<<~RUBY, requires: %w[json memscope])
      class Slow < Thread
        ASKED = Queue.new
        def to_s = ASKED.push(true) && sleep(0.05) && super
      end
      Slow.new { sleep }
      ends = %i[fork process].map do |place|
        Slow::ASKED.clear
        reader = Thread.new { loop { Memscope.heap_graph(in: place) } }
        Slow::ASKED.pop
        reader.kill.join(30).equal?(reader)
      end
      graph = Memscope.heap_graph(top: 1)
      puts JSON.generate([*ends, GC.disable, graph.reachable_count.positive?])
    RUBY

    assert_equal [true, true, false, true], ended
  end

  # A child that is forked while the GC is disabled would never collect.
  def test_the_gc_is_enabled_while_other_code_may_run
    seen = child_json(<<~RUBY, requires: %w[json memscope])
      class Watching < Thread
        SEEN = []
        def name
          Thread.pass
          SEEN << GC.disable
          GC.enable unless SEEN.last
        end
      end
      Watching.new { sleep }
      Thread.current[:held_by_a_thread] = Object.new
      paths = %i[fork process].map { |place| Memscope.heap_graph(paths_to: "Watching", in: place).target_count }
      puts JSON.generate([paths, Watching::SEEN.size.positive?, Watching::SEEN.uniq])
    RUBY

    assert_equal [[1, 1], true, [false]], seen
  end
end
