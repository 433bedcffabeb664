# frozen_string_literal: true

require_relative "command"
require_relative "of_program"
require_relative "other_process"
require_relative "output_file"
require_relative "profile_options"
require_relative "program_profile_command"

module Memscope
  module CLI
    # `memscope profile --pid N`: who holds the malloc memory of a process that listens; `memscope profile -- COMMAND`
    # is ProgramProfileCommand.
    class ProfileCommand < Command
      include OfProgram
      include OtherProcess
      include ProfileOptions

      # @return [String]
      def self.title = "profile"

      # @return [String]
      def self.summary = "print which lines of Ruby hold the memory that malloc gave"

      # @return [String]
      def self.example = "memscope profile --pid 4711 --seconds 60"

      private

      def program_command = ProgramProfileCommand

      def declare(parser)
        @seconds = 60.0
        declare_pid(parser)
        declare_profiling(parser, MallocProfile::RATE)
        parser.on("--seconds N", Float, "for which it is profiled (60)") { |n| @seconds = n }
        parser.on("--from FILE", "a profile that --format=json wrote, instead") { |path| @from = path }
        declare_format(parser)
      end

      def notes
        <<~TEXT
          Process N is profiled for so long, unless it allows no actions. What it allocated before
          is not known. By default that is by jemalloc's profiler, where the process was started
          with it (memscope exec --profile). Where it is profiled already, that profile goes on, and
          what changed in so many seconds is reported, by its backend and rate; it is said so.
        TEXT
      end

      def perform
        check_profiling
        check_seconds("seconds", @seconds)
        refuse("--from excludes --pid and --socket") if @from && other?
        raise Failure.new("of which process? allowed: --pid N, --socket PATH, --from FILE, -- COMMAND", USAGE) unless
          @from || other?

        OutputFile.reserve(@output, Failure) { write(@from ? read : asking { asked }) }
        FINE
      end

      # A profile that runs is somebody else's.
      def asked = other.call(:malloc_profile_state).fetch("running") ? changed : recorded

      def changed
        earlier = other.call(:malloc_profile_snapshot)
        @err.puts "memscope profile: process #{earlier.pid} is profiled already, by the backend #{earlier.backend}, " \
                  "one sample for each #{earlier.rate_bytes} bytes: that profile goes on, and this is what changes " \
                  "in #{format('%g', @seconds)} seconds"
        wait
        other.call(:malloc_profile_snapshot) - earlier
      end

      # Whatever ends this command, the other process is not left profiling: at the latest it stops by itself.
      def recorded
        token = other.call(:malloc_profile_start, seconds: @seconds, rate: @rate, backend: @backend || :auto)
        begin
          wait
        rescue SignalException
          other.call(:malloc_profile_stop, token: token)
          raise
        end
        other.call(:malloc_profile_stop, token: token)
      end

      def wait
        sleep(@seconds)
      rescue Interrupt
        @err.puts "memscope profile: stopped early"
      end

      # A difference is one where it says so.
      def read
        text = File.read(@from, encoding: Encoding::UTF_8)
        kind = text[0, 200].match?(/"kind"\s*:\s*"profile_difference"/) ? Profile::Difference : Profile
        kind.from_json(text)
      rescue SystemCallError => e
        raise Failure.new("--from #{@from}: #{e.class.new.message}", INPUT_OUTPUT)
      rescue ArgumentError => e
        raise Failure.new("--from #{@from}: #{e.message}", INPUT_OUTPUT)
      end

      def write(profile)
        text = Profile::Formats.write(profile, @format)
        @output ? File.binwrite(@output, text) : self.class.write(@out, text)
      rescue SystemCallError => e
        raise Failure.new("--output #{@output}: #{e.class.new.message}", INPUT_OUTPUT)
      rescue LoadError => e
        raise Failure.new(e.message, INPUT_OUTPUT)
      end
    end
  end
end
