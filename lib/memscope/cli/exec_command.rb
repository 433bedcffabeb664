# frozen_string_literal: true

require_relative "program_command"

module Memscope
  module CLI
    # `memscope exec`: becomes a program whose malloc a chosen allocator is proved to serve.
    class ExecCommand < ProgramCommand
      # @return [String]
      def self.title = "exec"

      # @return [String]
      def self.summary = "start a program under a proven jemalloc, or another allocator"

      # @return [String]
      def self.example = "memscope exec --conf=background_thread:true -- bundle exec puma"

      private

      def declare(parser)
        parser.on("--allocator NAME", "jemalloc (the default), glibc, off, or the path of a library") do |name|
          @allocator = name
        end
        parser.on("--conf PAIRS", "merge these into MALLOC_CONF; they count before what is there") do |pairs|
          @pairs = [@pairs, pairs].compact.join(",")
        end
        parser.on("--profile", "let jemalloc's profiler be ready: for memscope profile and Memscope::MallocProfile") do
          @pairs = [@pairs, MallocProfile::CONF].compact.join(",")
        end
        parser.on("--if-present", "where it cannot be proved, start COMMAND without, and say so") do
          @if_present = true
        end
      end

      def notes
        <<~TEXT
          COMMAND starts only when the allocator is proved to serve malloc in this
          environment; a Ruby program proves it once more, before its script. Of another one
          its dynamic linker says whose malloc it would have; a malloc that it keeps to itself
          is not seen. Otherwise the reason is printed and the exit status is 74. Where COMMAND
          cannot be found it is 127, where it cannot be executed 126, and COMMAND's own once
          that runs.

          Without --allocator, the first of these decides that is there: the variable
          #{Launch::AllocatorChoice::VARIABLE}, the file that #{Launch::AllocatorChoice::FILE_VARIABLE} names,
          memscope/allocator in $XDG_CONFIG_HOME, #{Launch::AllocatorChoice::HOST_FILE}. Each holds what
          --allocator takes; with "off" COMMAND is started as it is.
        TEXT
      end

      def start(program)
        choice = Launch::AllocatorChoice.made(@allocator, ENV)
        if @pairs && !choice.configurable?
          raise Failure.new("--conf is for jemalloc; #{choice.name} does not read it", USAGE)
        end

        become(program, choice.off? ? Launch::Environment.new(ENV) : proved(program, choice))
      end

      def proved(program, choice)
        environment = Launch::Environment.new(ENV)
        choice.library ? environment.preload(choice.library) : environment.drop_allocators
        environment.configure(@pairs) if @pairs
        check(program, choice, environment.changes)
        hand_over(choice, environment) if program.ruby?
        refuse_assignments(program, environment) { |name| choice.decided_by?(name) }
        environment
      rescue Launch::Refusal => e
        raise unless @if_present

        say("#{e.message}; #{@command.first} is started without (--if-present)")
        Launch::Environment.new(ENV)
      end

      def check(program, choice, changes)
        obstacle = program.preload_obstacle if choice.library
        raise Launch::Refusal, obstacle if obstacle

        allocator = Launch::Probe.allocator(choice, changes)
        raise Launch::Refusal, "--conf is for jemalloc, and this is #{allocator}" if @pairs && allocator != "jemalloc"

        objection = Launch::DynamicLinker.objection(program, choice.library, changes)
        raise Launch::Refusal, objection if objection
      end

      def hand_over(choice, environment)
        Launch::HandOver.give("prove_first", environment,
                              expected: choice.name, status: INPUT_OUTPUT, if_present: @if_present)
      end
    end
  end
end
