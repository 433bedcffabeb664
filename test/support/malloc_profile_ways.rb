# frozen_string_literal: true

require_relative "child_process"

# The ways of profiling malloc: the allocator, the backend, and the environment of the child. Extends a MemscopeTest
# whose constant WAYS holds some of these.
module MallocProfileWays
  PROFILING = { "MALLOC_CONF" => "prof:true,prof_active:false,prof_accum:true" }.freeze

  # @return [Hash{Symbol => Hash}] options of ChildProcess.run; its ENV["BACKEND"] is for MallocProfile.start
  ALL = if ChildProcess::SANITIZER
          { imports_under_sanitizer: { env: { "BACKEND" => "imports" } } }
        else
          { imports_under_glibc: { env: { "BACKEND" => "imports" } },
            imports_under_jemalloc: { env: { "BACKEND" => "imports" }, preload: "libjemalloc.so.2" },
            jemalloc: { env: { "BACKEND" => "jemalloc", **PROFILING }, preload: "libjemalloc.so.2" } }
        end.freeze

  EACH_BACKEND = ALL.except(:imports_under_jemalloc).freeze

  # Defines one test for each way. The block gets its options. The ways in in_full are tested only in full. Returns the
  # tests' names.
  def each_way(name, ways = self::WAYS, in_full: [], &body)
    ways.map do |way, options|
      test = define_method("test_#{name}_#{way}") do
        skip_without_jemallocs_profiler if way == :jemalloc
        instance_exec(options, &body)
      end
      only_in_full(test) if in_full.include?(way)
      test
    end
  end
end
