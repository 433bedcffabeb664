# frozen_string_literal: true

# Which files of tests are run where not all of them are.
module Suites
  # @return [Array<String>] paths from the root of the tree, in order
  def self.files(*patterns) = Dir[*patterns, base: File.expand_path("../..", __dir__)].sort.freeze

  ALL = files("test/**/*_test.rb")

  # In seconds, and nearly all in this process: values, parsers, rules as data, the C tests of the engine.
  UNIT = files("test/{cgroup,configuration,diff,facade_documentation,forks,ledger,lint,malloc_conf,mappings}_test.rb",
               "test/{memscope,metrics,process_memory,profile,reading,report,tree,ttl_cache,tuning,workers}_test.rb",
               "test/{bindings,rakelib,report}/**/*_test.rb", "test/profile/formats_test.rb",
               "test/engine/c_tests_test.rb")

  # Of Ruby alone: surfaces call nothing in C that the others do not.
  SURFACES = files("test/{*report,configuration,doctor,exporters,facade_documentation,launch,lint}_test.rb",
                   "test/{loading,metrics*,profile_*,prometheus,rack_tags,railtie,tasks,workers}_test.rb",
                   "test/{report,profile,generators,remote}/**/*_test.rb",
                   "test/{cli,launch,rakelib}/*_test.rb")

  # What must hold whatever serves malloc: under a sanitizer neither glibc nor jemalloc does. The engine's C tests have
  # a sanitized flavour of their own.
  SANITIZED = (files("test/*_test.rb", "test/bindings/*_test.rb",
                     "test/acceptance/{degraded,malloc_profile,stress,trap}_test.rb") -
               SURFACES).freeze

  # What another Ruby alone may change, in less than a minute: what memscope knows of its inside, and what stands on
  # that.
  OF_RUBY = files("test/{memscope,ruby_heap,snapshot,purge,loading}_test.rb", "test/{purge,ruby_heap}/*_test.rb",
                  "test/engine/sampling/*_test.rb",
                  "test/acceptance/{closed_sum,compaction,trap,fork,doctor}_test.rb")

  # What must hold even on a Ruby that is not released yet.
  SMOKE = files("test/acceptance/smoke_test.rb")

  # What another Ruby, C library or jemalloc may change: the engine, the readings, the malloc profile, what becomes of
  # the heap and of malloc, and of the surfaces what the dynamic linker and Ruby's own warnings are part of. Whatever
  # lives in an application or is packaged with gems is not.
  OF_THE_SYSTEM = (ALL - SURFACES +
                   files("test/{loading,remote/server}_test.rb", "test/cli/{exec,profile}_command_test.rb") -
                   files("test/web/**/*_test.rb",
                         "test/acceptance/{application,packaging,prometheus,sidekiq,web_*,workers*}_test.rb")).freeze
end
