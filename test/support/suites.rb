# frozen_string_literal: true

# Which test files run when not all of them do.
module Suites
  # @return [Array<String>] paths from the root of the tree, in order
  def self.files(*patterns) = Dir[*patterns, base: File.expand_path("../..", __dir__)].sort.freeze

  ALL = files("test/**/*_test.rb")

  # What bin/check runs beside the tests of bin/test: each has the only test of something, but takes long.
  LONG = files("test/acceptance/{action,assertions,attach_pause,attach_servers,check_application}_test.rb",
               "test/acceptance/{copy_on_write,endurance,faults,heap_hostile}_test.rb",
               "test/acceptance/{malloc_profile_overhead,object_growth,packaging,policy_sidekiq}_test.rb",
               "test/acceptance/{requires_rails,sidekiq_web,stress,verdict}_test.rb",
               "test/{check/application,engine/trend/verdict_battery,judge/policy/battery}_test.rb",
               "test/generators/**/*_test.rb")
  # Files with tests that only make others more certain: rake test:full runs these.
  IN_FULL = ALL.select do |file|
    File.binread("#{__dir__}/../../#{file}").match?(/\bonly_in_full\b|, in_full: |"MEMSCOPE_IN_FULL"/)
  end.freeze

  # What bin/test runs: acceptance tests and C tests first, and of these the longest files, since they take most time.
  TEST = (ALL - LONG).sort_by do |file|
    [file.start_with?("test/acceptance/", "test/engine/c_tests") ? 0 : 1, -File.size("#{__dir__}/../../#{file}")]
  end.freeze

  # These take seconds, and run nearly completely in this process: values, parsers, rules as data, the engine's C tests.
  UNIT = files("test/{facade_documentation,memscope,tree,version}_test.rb",
               "test/{action/tuning,judge/lint,judge/lint/*,remote/worker,remote/workers}_test.rb",
               "test/value/{collection,configuration,configuration/settings,diff,forks,quantity,reading}_test.rb",
               "test/value/{native/absent,requirement,ttl_cache}_test.rb",
               "test/process/{cgroup,ledger,malloc_{conf,variables},mappings,process_memory}_test.rb",
               "test/{bindings,rakelib,remote/workers,show}/**/*_test.rb",
               "test/profile/{grouping,growth,leaks,libraries,pprof,profile,speedscope,stack}_test.rb",
               "test/engine/c_tests_test.rb")

  # Tests of Ruby code only: surfaces call nothing in C that other tests do not.
  SURFACES = files("test/{check,cli,generators,puma,rakelib,remote,setup,show,web}/**/*_test.rb",
                   "test/{assertions,open_telemetry,prometheus_collector,rspec,sidekiq_web,tasks,version,web}_test.rb",
                   "test/yabeda_test.rb",
                   # Of action/, not of lib/memscope/action/.
                   "test/action/{commit,compare,comparison,publication}_test.rb",
                   "test/{contract,facade_documentation,judge/diagnosis,judge/doctor,judge/lint}_test.rb",
                   "test/judge/policy_test.rb",
                   "test/value/{configuration,configuration/settings,field_table,loader,loading,reasons,words}_test.rb",
                   "test/profile/{application,pprof,shares,speedscope}_test.rb")

  # Tests that must pass under any malloc: under a sanitizer, neither glibc nor jemalloc serves it, so there are no
  # arenas. The engine's C tests have a sanitized flavour of their own.
  SANITIZED = (files("test/*_test.rb", "test/{action,bindings,heap,judge,process,profile,value}/*_test.rb",
                     "test/value/native/absent_test.rb",
                     "test/acceptance/{degraded,malloc_profile,stress,trap}_test.rb") -
               SURFACES - files("test/process/{arenas,fragmentation,size_classes}_test.rb")).freeze

  # Tests that another Ruby or C library is likely to break first, in a minute: the ledger's sums, planted memory in
  # malloc and the heap, the prediction of a compaction, the lines of profiles, a walk of the heap, copies of processes
  # that have not loaded memscope.
  CORE = files("test/acceptance/{closed_sum,compaction,injection,object_profile,smoke,trap}_test.rb",
               "test/bindings/{copied_value,copy_binding}_test.rb",
               "test/{memscope,action/purge,heap/census,process/ruby_heap,value/native/absent}_test.rb",
               "test/engine/{attach/{postponed_text,private_copy},malloc/*}_test.rb",
               "test/ruby/{heap/{census,heap_references},graph/named_references}_test.rb")

  # Tests that must pass even on a Ruby that is not released yet.
  SMOKE = files("test/acceptance/smoke_test.rb")
end
