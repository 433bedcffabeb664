# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/process/host_environment"

class OwnRubyTest < MemscopeTest
  NATIVE = Memscope.const_get(:Native)

  def test_this_process
    assert_predicate NATIVE, :own?
    assert_equal ["self", RUBY_VERSION], [NATIVE.process, NATIVE.ruby]
    assert_operator NATIVE.jit_bytes, :>=, 0
  end

  # What happens to the collector and the tracer: host_environment_test.rb.
  def test_the_facts_of_a_host_environment
    facts = NATIVE.facts

    assert_equal [Etc.nprocessors, 1, Process.ppid, {}],
                 facts.values_at(:cpus, :ractors, :parent_pid, :variables)
    assert_empty facts.keys - Memscope::HostEnvironment.fields.map(&:name)
  end

  # A compiler that reports its memory, as YJIT does in a build with statistics.
  def test_the_memory_of_compilers
    script = <<~RUBY
      yjit = defined?(RubyVM::YJIT) ? RubyVM::YJIT : RubyVM.const_set(:YJIT, Module.new)
      def yjit.runtime_stats = { yjit_alloc_size: 4096 }
      puts Memscope.const_get(:Native).jit_bytes
    RUBY

    assert_equal "4096", ChildProcess.run(script, requires: ["memscope"]).out.chomp
  end
end
