# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/heap_leaks"

# From "it grows" to the constant that holds it: each leak in a process of its own, asked without any hint.
class HeapGraphAcceptanceTest < MemscopeTest
  HeapLeaks::ALL.each do |name, leak|
    define_method("test_finds_the_holder_of_#{name}") do
      found = child_json(<<~RUBY, requires: %w[json memscope])
        #{leak.script}
        graph = Memscope.heap_graph(top: 5)
        first = graph.paths.first
        puts JSON.generate(path: first&.to_s, held: first&.held_class, paths: graph.paths.map(&:to_s),
                           classes: graph.retained.map(&:name), reasons: graph.reasons)
      RUBY

      assert_operator leak.path, :===, found["path"], found
      assert_operator leak.held_class, :===, found["held"], found
    end
  end
end
