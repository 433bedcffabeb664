# frozen_string_literal: true

require_relative "program_command"
require_relative "output_file"
require_relative "profile_options"

module Memscope
  module CLI
    # `memscope profile -- COMMAND`: becomes a Ruby program that is profiled from its first line, and reports when it
    # ends.
    class ProgramProfileCommand < ProgramCommand
      include ProfileOptions

      # @return [String]
      def self.title = "profile"

      # @return [String]
      def self.summary = "run a Ruby program and print who holds its malloc memory when it ends"

      # @return [String]
      def self.example = "memscope profile --format=html --output heap.html -- bundle exec rake import"

      private

      def declare(parser)
        declare_profiling(parser, MallocProfile::RATE)
        declare_format(parser)
        parser.on("--seconds N", Float, "profile the first N seconds only, and report then") { |n| @seconds = n }
        declare_generations(parser)
      end

      def declare_generations(parser)
        parser.on("--generations SECONDS", Float, "begin a new generation at this interval") { |n| @generations = n }
      end

      def notes
        <<~TEXT
          Garbage is collected first, so that the profile is of what stays. It goes to standard
          error, or to FILE. Each process that COMMAND forks, as Puma's workers, reports its own
          when it ends, to standard error or to FILE with its pid in the name, heap.4711.html; what
          it has inherited is in it. There is none where a process ends by exit! or is killed, nor
          of other programs that COMMAND starts. One that runs is read with --pid, where it listens
          (MEMSCOPE_LISTEN=1). The exit status is COMMAND's own.

          Without --backend, the program is started under a jemalloc whose profiler is ready,
          where there is one, and otherwise profiled by the backend imports; it is said which.
        TEXT
      end

      def start(program)
        check_options
        refuse_other_programs(program, "be profiled")

        environment = prepared
        Launch::HandOver.give("profile_last", environment, **order)
        refuse_assignments(program, environment)
        OutputFile.reserve(@output, Launch::Program::Unavailable) { become(program, environment) }
      end

      def check_options
        check_profiling
        check_seconds("seconds", @seconds)
        check_seconds("generations", @generations)
        return unless @format == :pprof

        raise Failure.new("--format=pprof is binary: give --output FILE", USAGE) unless @output

        require "google/protobuf"
      rescue LoadError
        raise Failure.new("--format=pprof needs the gem google-protobuf: gem install google-protobuf", INPUT_OUTPUT)
      end

      def order
        { title: self.class.title, backend: @backend, rate: @rate, format: @format, seconds: @seconds,
          generations: @generations, output: (File.expand_path(@output) if @output), status: INPUT_OUTPUT }
      end

      # @return [Launch::Environment] with a jemalloc whose profiler is ready, where that is wanted and can be had
      def prepared
        return Launch::Environment.new(ENV) if @backend == :imports

        with_jemalloc
      rescue Launch::Refusal => e
        raise if @backend == :jemalloc

        say("#{e.message}; profiling by the backend imports")
        without_jemalloc
      end

      def with_jemalloc
        choice = Launch::AllocatorChoice.made(nil, ENV)
        raise Launch::Refusal, "the allocator is to be #{choice.name}, which has no profiler" unless choice.library

        environment = Launch::Environment.new(ENV)
        environment.preload(choice.library)
        environment.configure(MallocProfile::CONF)
        allocator = Launch::Probe.allocator(choice, environment.changes)
        raise Launch::Refusal, "#{choice.name} is #{allocator}, which has no profiler" if allocator != "jemalloc"

        @backend ||= :auto
        say("profiling by jemalloc's own profiler") if @backend == :auto
        environment
      end

      def without_jemalloc
        @backend = :imports
        Launch::Environment.new(ENV)
      end
    end
  end
end
