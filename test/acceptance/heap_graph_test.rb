# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bystander"
require_relative "../support/heap_leaks"
require "memscope/remote/copy"

# From "it grows" to the constant that holds it: each leak in a process of its own, asked without any hint.
class HeapGraphAcceptanceTest < MemscopeTest
  include Bystander

  # Under both allocators in rake battery:heap.
  UNDER = ENV.fetch("ALLOCATORS", "glibc").split.map(&:to_sym)

  UNDER.product(HeapLeaks::ALL.to_a).each do |allocator, (name, leak)|
    define_method("test_finds_the_holder_of_#{name}_under_#{allocator}") do
      found = child_json(<<~RUBY, requires: %w[json], preload: ChildProcess::ALLOCATORS.fetch(allocator))
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

  # Some of them here; all of them in the battery.
  FROM_OUTSIDE = ENV.key?("ALLOCATORS") ? HeapLeaks::ALL : HeapLeaks::ALL.slice(:thread_locals, :closure, :finalizer)

  UNDER.product(FROM_OUTSIDE.to_a).each do |allocator, (name, leak)|
    define_method("test_finds_the_holder_of_#{name}_in_a_copy_under_#{allocator}") do
      skip_under_sanitizer # the process is without it
      environment = ChildProcess.environment(ChildProcess::ALLOCATORS.fetch(allocator), {})
      running(*ChildProcess.ruby, "-e", "#{leak.script}\nputs; $stdout.flush; sleep", env: environment) do |pid|
        first = heap_graph(pid).paths.first

        assert_operator leak.path, :===, first.to_s
        assert_operator leak.held_class, :===, first.held_class
      end
    end
  end

  private

  def heap_graph(pid)
    copy = Memscope::Copy.new(pid)
    copy.call(:heap_graph, top: 5)
  ensure
    copy&.close
  end
end
