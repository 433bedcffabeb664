# frozen_string_literal: true

# Which test files run when not all of them do.
module Suites
  # @return [Array<String>] paths from the root of the tree, in order
  def self.files(*patterns) = Dir[*patterns, base: File.expand_path("../..", __dir__)].sort.freeze

  ALL = files("test/**/*_test.rb")

  # Most of the parallel tests wait for children. The others run one after another in the process of the tests itself.
  PARALLEL, SERIAL =
    ALL.partition { |file| File.read("#{__dir__}/../../#{file}").include?("parallelize_me!") }.each(&:freeze)

  # These take seconds, and run nearly completely in this process: values, parsers, rules as data, the engine's C tests.
  UNIT = files("test/{cgroup,configuration,diff,facade_documentation,forks,ledger,lint,malloc_conf,mappings}_test.rb",
               "test/{memscope,metrics,process_memory,profile,reading,report,tree,ttl_cache,tuning,workers}_test.rb",
               "test/{bindings,rakelib,report,workers}/**/*_test.rb", "test/profile/formats_test.rb",
               "test/engine/c_tests_test.rb")

  # Tests of Ruby code only: surfaces call nothing in C that other tests do not.
  SURFACES = files("test/{*report,configuration,doctor,exporters,facade_documentation,launch,lint}_test.rb",
                   "test/{loading,metrics*,profile_*,prometheus,rack_tags,railtie,tasks,workers}_test.rb",
                   "test/{report,profile,generators,remote}/**/*_test.rb",
                   "test/{cli,launch,rakelib}/*_test.rb")

  # Tests that must pass whatever serves malloc: under a sanitizer, neither glibc nor jemalloc does. The engine's C
  # tests have a sanitized flavour of their own.
  SANITIZED = (files("test/*_test.rb", "test/bindings/*_test.rb",
                     "test/acceptance/{degraded,malloc_profile,stress,trap}_test.rb") -
               SURFACES).freeze

  # Tests of what another Ruby alone may change, in less than a minute: what memscope knows about Ruby's internals, and
  # what relies on that.
  OF_RUBY = files("test/{memscope,ruby_heap,census,snapshot,purge,loading}_test.rb",
                  "test/{purge,ruby_heap}/*_test.rb", "test/ruby/{census,heap_references,named_references}_test.rb",
                  "test/engine/sampling/*_test.rb",
                  "test/acceptance/{closed_sum,compaction,trap,fork,doctor,heap_*,kept_alive}_test.rb",
                  "test/acceptance/object_{leaks,profile}_test.rb")

  # Tests that must pass even on a Ruby that is not released yet.
  SMOKE = files("test/acceptance/smoke_test.rb")

  # Tests of what another Ruby, C library or jemalloc may change: the engine, the readings, the malloc profile, the
  # effects on the heap and on malloc, and those surfaces that involve the dynamic linker or Ruby's own warnings. Tests
  # that need an application or packaged gems are not included, nor those that judge what others have read.
  OF_THE_SYSTEM = (ALL - SURFACES +
                   files("test/{loading,remote/server}_test.rb", "test/cli/{exec,profile}_command_test.rb") -
                   files("test/{engine/trend,web}/**/*_test.rb", "test/{heap_graph/growth,verdict}_test.rb",
                         "test/acceptance/{application,lint,object_growth,packaging,policy_*,prometheus}_test.rb",
                         "test/acceptance/{dump,endurance,faults,sidekiq,survivors,verdict,web_*,workers*}_test.rb")
                  ).freeze
end
