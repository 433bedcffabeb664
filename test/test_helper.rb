# frozen_string_literal: true

require_relative "support/child_process"

ChildProcess::LOAD_PATH.reverse_each { |directory| $LOAD_PATH.unshift(directory) }

require "minitest/autorun"
require "memscope"
require_relative "support/waiting_first"

Minitest.parallel_executor &&= WaitingFirst.new(Minitest.parallel_executor.size)

class MemscopeTest < Minitest::Test
  # Defines one test for each allocator of ChildProcess::ALLOCATORS; the block gets what to preload (nil for glibc).
  # Under a sanitizer there is one only: its own allocator serves malloc whatever is preloaded.
  def self.both_allocators(name, &body)
    allocators = ChildProcess::SANITIZER ? { sanitizer: nil } : ChildProcess::ALLOCATORS
    allocators.each do |allocator, preload|
      define_method("test_#{name.gsub(/\W+/, '_')}_under_#{allocator}") { instance_exec(preload, &body) }
    end
  end

  # For tests of what a known allocator says: under a sanitizer none serves malloc.
  def skip_under_sanitizer
    skip "a sanitizer's own allocator serves malloc" if ChildProcess::SANITIZER
  end

  # For tests of compaction, which memscope refuses where it can crash Ruby.
  def skip_without_compaction
    reason = Memscope::Purge.missing[:compact]
    skip reason if reason
  end

  # For tests of jemalloc's own profiler, which Debian's package for arm64 is built without.
  def skip_without_jemallocs_profiler
    skip "this jemalloc is built without its profiler" if MemscopeTest.jemalloc_profiling == "not_built"
  end

  # @return [String] Native.jemalloc_profiling where jemalloc serves malloc
  def self.jemalloc_profiling
    @jemalloc_profiling ||= ChildProcess.run("puts Memscope.const_get(:Native).jemalloc_profiling.to_s.dump",
                                             requires: ["memscope"], preload: "libjemalloc.so.2").json
  end

  # Runs script in a child with memscope loaded and returns its last line of output, parsed.
  def child_json(script, requires: [], **options)
    ChildProcess.run(script, requires: ["memscope", *requires], **options).json
  end
end
