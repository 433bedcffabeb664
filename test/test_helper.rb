# frozen_string_literal: true

require_relative "support/child_process"

ENV.delete("COLUMNS") # tests compare texts as they are without a terminal
# Children that inherit this environment start without Bundler, which takes half a second of CPU.
options = ENV.fetch("RUBYOPT", "").gsub(%r{-r\S*bundler/setup\b}, "").strip
ENV["RUBYOPT"] = options.empty? ? nil : options

ChildProcess::LOAD_PATH.reverse_each { |directory| $LOAD_PATH.unshift(directory) }

require "minitest/autorun"
require "memscope"

class MemscopeTest < Minitest::Test
  # Ruby 3.2 takes its transient heap from malloc, though it hardly touches it: 32 MiB, aligned.
  TRANSIENT_HEAP_IN_MALLOC = RUBY_VERSION.start_with?("3.2.") ? 32 << 20 : 0

  # Defines one test for each allocator of ChildProcess::ALLOCATORS; the block gets what to preload (nil for glibc).
  # Under a sanitizer there is one only: its own allocator serves malloc whatever is preloaded. The tests of the
  # allocators in in_full run only in full.
  def self.both_allocators(name, in_full: [], &body)
    allocators = ChildProcess::SANITIZER ? { sanitizer: nil } : ChildProcess::ALLOCATORS
    allocators.each do |allocator, preload|
      test = define_method("test_#{name.gsub(/\W+/, '_')}_under_#{allocator}") { instance_exec(preload, &body) }
      only_in_full(test) if in_full.include?(allocator)
    end
  end

  # For tests that make others of their file more certain: bin/test and bin/check leave them out, rake test:full runs
  # them alone, in the files of Suites::IN_FULL.
  def self.only_in_full(*names)
    (@only_in_full ||= []).concat(names.flatten.map(&:to_s))
  end

  # Minitest's list of a class's tests.
  def self.runnable_methods
    case ENV.fetch("MEMSCOPE_IN_FULL", nil)
    when nil then super - (@only_in_full || [])
    when "only" then super & (@only_in_full || [])
    else super
    end
  end

  # For tests of what a known allocator reports: under a sanitizer, no known one serves malloc.
  def skip_under_sanitizer
    skip "a sanitizer's own allocator serves malloc" if ChildProcess::SANITIZER
  end

  # For tests that need a library that has become a gem and may not be installed: fiddle, since Ruby 4.0.
  def skip_without(feature)
    skip "this Ruby comes without #{feature}" unless MemscopeTest.feature?(feature)
  end

  # For tests of what jemalloc holds that is not resident, or that no object accounts for.
  def skip_with_transient_heap_in_malloc
    skip "Ruby 3.2's transient heap is malloc's, and hardly touched" if TRANSIENT_HEAP_IN_MALLOC.positive?
  end

  # For tests with a process of another user: after it has become that user, it loads more of memscope and of Ruby.
  def skip_unless_readable_for(uid)
    command = ["setpriv", "--reuid=#{uid}", "--regid=#{uid}", "--clear-groups", "test", "-r"]
    library = File.join(ChildProcess::LOAD_PATH.first, "memscope", "memscope.so")
    readable = [library, RbConfig.ruby].all? { |path| system(*command, path, err: File::NULL) }
    skip "there is no setpriv, or uid #{uid} cannot read the tree or Ruby" unless readable
  end

  # For tests of compaction, which memscope refuses if it can crash this Ruby.
  def skip_without_compaction
    reason = Memscope::Purge.missing[:compact]
    skip reason if reason
  end

  # For tests of jemalloc's own profiler, which Debian's package for arm64 is built without.
  def skip_without_jemallocs_profiler
    skip "this jemalloc is built without its profiler" if MemscopeTest.jemalloc_profiling == "not_built"
  end

  # @return [Boolean] whether a child can require it
  def self.feature?(feature)
    @features ||= Hash.new { |known, name| known[name] = ChildProcess.run("", requires: [name]).success? }
    @features[feature]
  end

  # @return [String] Native.jemalloc_profiling in a process whose malloc jemalloc serves
  def self.jemalloc_profiling
    @jemalloc_profiling ||= ChildProcess.run("puts Memscope.const_get(:Native).jemalloc_profiling.to_s.dump",
                                             requires: ["memscope"], preload: "libjemalloc.so.2").json
  end

  # Runs script in a child with memscope loaded and returns its last line of output, parsed.
  def child_json(script, requires: [], **options)
    ChildProcess.run(script, requires: ["memscope", *requires], **options).json
  end
end
