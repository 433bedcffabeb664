# frozen_string_literal: true

require "fileutils"
require "open3"
require "tmpdir"
require_relative "../../ext/memscope/record_structs"

# C fixtures, compiled once per test run into a directory that is removed at its end.
module Compiled
  ROOT = File.expand_path("../..", __dir__)
  ENGINE = File.join(ROOT, "ext", "memscope", "engine")
  FLAGS = %w[-std=c11 -O1 -g -Wall -Wextra -D_GNU_SOURCE].freeze
  BUILDING = Mutex.new
  MAKING_DIRECTORY = Mutex.new

  # The compiler failed. The message contains its output.
  class Failure < StandardError; end

  class << self
    # @return [String] the path of a shared object built from test/fixtures/<source>
    def shared(source, *arguments, as: "#{name_of(source)}.so")
      build(as, "-shared", "-fPIC", fixture(source), *arguments)
    end

    # @return [String] the path of a program built from test/<source> and these files of the engine
    def program(source, engine: [], compiler: "cc", arguments: [], as: "#{compiler}-#{name_of(source)}")
      sources = engine.map { |file| File.join(ENGINE, file) }
      build(as, "-I#{ENGINE}", "-I#{RecordStructs.write}", File.join(ROOT, "test", source), *sources, *arguments,
            compiler: compiler)
    end

    # Runs a command that must succeed.
    #
    # @return [String] its output
    def run(*command)
      output, status = Open3.capture2e(*command)
      raise Failure, "#{command.join(' ')}\n#{output}" unless status.success?

      output
    end

    # @return [String] the path of a file with that name in the directory of compiled fixtures
    def path(name) = File.join(directory, name)

    private

    def fixture(source) = File.join(ROOT, "test", "fixtures", source)

    def name_of(source) = File.basename(source, ".*")

    # Parallel tests need the same files: none of them sees a file that is still being written.
    def build(name, *arguments, compiler: "cc")
      target = path(name)
      BUILDING.synchronize do
        run(compiler, *FLAGS, *arguments, "-o", target) unless File.exist?(target)
      end
      target
    end

    def directory
      MAKING_DIRECTORY.synchronize do
        @directory ||= begin
          directory = Dir.mktmpdir("memscope")
          owner = Process.pid
          at_exit { FileUtils.remove_entry(directory) if Process.pid == owner }
          directory
        end
      end
    end
  end
end
