# frozen_string_literal: true

require "minitest/autorun"
require "etc"
require "fileutils"
require "open3"
require "tmpdir"
require_relative "../../ext/memscope/record_structs"

# Builds the engine and each C test of test/engine and test/ruby, and runs them: with the system's compiler; in
# bin/check with AddressSanitizer and UBSan (MEMSCOPE_C_FLAVOURS=sanitized); in full also against musl.
class CTestsTest < Minitest::Test
  parallelize_me!

  ROOT = File.expand_path("../..", __dir__)
  # The engine, and the part of ruby/ that is pure arithmetic.
  SOURCES = Dir[File.join(ROOT, "ext/memscope/{engine/**/*,ruby/heap/compaction_bounds}.c")].freeze
  DEPENDENCIES = [*Dir[File.join(ROOT, "ext/memscope/**/*.{c,h,def,rb}")], *FieldTables.paths, __FILE__].freeze
  FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra",
           "-I#{ROOT}/ext/memscope", "-I#{ROOT}/ext/memscope/engine", "-I#{RecordStructs.write}"].freeze
  IN_FULL = ENV.key?("MEMSCOPE_IN_FULL")
  # IN_FULL: as many repetitions as make a test of estimates certain.
  FLAVOURS = { gcc: IN_FULL ? %w[gcc -O1 -DIN_FULL] : %w[gcc],
               musl: %w[musl-gcc],
               sanitized: %w[gcc -g -fsanitize=address,undefined -fno-sanitize-recover=undefined] }.freeze
  CHOSEN = IN_FULL ? FLAVOURS.keys : ENV.fetch("MEMSCOPE_C_FLAVOURS", "gcc").split(",").map(&:to_sym).freeze
  BUILDING = FLAVOURS.transform_values { Mutex.new }.freeze
  MAKING_SCRATCH = Mutex.new

  class << self
    # The engine's library, built once for each flavour by the first of the parallel tests. A test links what it uses.
    def library(flavour)
      BUILDING.fetch(flavour).synchronize { (@libraries ||= {})[flavour] ||= build(flavour) }
    end

    # rake test:unit keeps the library until a source changes.
    def build(flavour)
      directory = File.join(ENV.key?("MEMSCOPE_UNIT") ? File.join(ROOT, "tmp/c_tests") : scratch, flavour.to_s)
      library = File.join(directory, "engine.a")
      return library if FileUtils.uptodate?(library, DEPENDENCIES)

      FileUtils.rm_rf(directory)
      FileUtils.mkdir_p(directory)
      SOURCES.each_slice((SOURCES.size / Float(Etc.nprocessors)).ceil).map do |part|
        Thread.new { run_command(*FLAVOURS.fetch(flavour), *FLAGS, "-c", *part, chdir: directory) }
      end.each(&:join)
      run_command("ar", "rcs", library, *Dir[File.join(directory, "*.o")])
      library
    end

    def scratch
      MAKING_SCRATCH.synchronize do
        @scratch ||= Dir.mktmpdir("memscope").tap do |directory|
          Minitest.after_run { FileUtils.remove_entry(directory) }
        end
      end
    end

    def run_command(*command, **options)
      output, status = Open3.capture2e(*command, **options)
      raise "#{command.grep(String).first(3).join(' ')} … #{command.last} (#{status})\n#{output}" unless status.success?

      output
    end
  end

  FLAVOURS.slice(*CHOSEN).each do |flavour, compiler|
    Dir[File.join(ROOT, "test/{engine,ruby}/**/*_test.c")].each do |source|
      name = File.basename(source, ".c")
      define_method("test_#{name}_#{flavour}") do
        skip "#{compiler.first} is not installed" unless system(compiler.first, "-v", err: File::NULL)

        # A directory of its own: tests write files, and flavours of one test run in parallel.
        directory = File.join(self.class.scratch, "#{name}_#{flavour}")
        FileUtils.mkdir_p(directory)
        program = File.join(directory, name)
        self.class.run_command(*compiler, *FLAGS, "-Werror", "-Wno-unused-parameter", "-Wno-unused-function", source,
                               self.class.library(flavour), "-pthread", "-ldl", "-lm", "-o", program)
        output = self.class.run_command({ "ASAN_OPTIONS" => "detect_leaks=0" }, program, chdir: directory)
        skip output if output.start_with?("skipped")

        assert_empty output
      end
    end
  end
end
