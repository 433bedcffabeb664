# frozen_string_literal: true

require_relative "program_profile_command"

module Memscope
  module CLI
    # `memscope leaks -- COMMAND`: becomes a Ruby program that fails where a line of it has kept too much of what was
    # allocated after its warm-up. For tests of native gems.
    class LeaksCommand < ProgramProfileCommand
      # Bytes: so much from sample to sample, and as the threshold, where nothing else is said.
      RATE = 1 << 12
      THRESHOLD = 1 << 20
      # Seconds of warm-up.
      WARM_UP = 1.0
      private_constant :RATE, :THRESHOLD, :WARM_UP

      # @return [String]
      def self.title = "leaks"

      # @return [String]
      def self.summary = "run a Ruby program, and fail where its malloc memory grows"

      # @return [String]
      def self.example = "memscope leaks --threshold=200000 --warmup=2 -- bundle exec ruby test/leaks.rb"

      private

      def declare(parser)
        @threshold = THRESHOLD
        declare_profiling(parser, RATE)
        declare_format(parser)
        parser.on("--threshold BYTES", Integer, "that a line may keep (#{THRESHOLD})") { |bytes| @threshold = bytes }
        parser.on("--warmup SECONDS", Float, "do not judge what is allocated until then (1)") { |n| @warmup = n }
        parser.on("--after SIGNAL", "nor until the program has got SIGNAL, as USR2") { |name| @after = name }
        declare_generations(parser)
      end

      def notes
        <<~TEXT
          When COMMAND ends, garbage is collected, and what lives of all that was allocated after
          the warm-up is printed by line, with its age in generations. The exit status is 1 where
          a line has kept more than the threshold, give or take two standard errors of its
          estimate; 74 where the warm-up did not end before COMMAND; otherwise COMMAND's own.

          COMMAND best does the same thing again and again. With --warmup or --after the warm-up
          ends as told; Memscope::MallocProfile.next_generation in COMMAND ends it as well.
          The report goes to standard error, or to FILE; the verdict to standard error. Both are
          of the process that is started, not of those that it forks.
        TEXT
      end

      def check_options
        super
        check_seconds("warmup", @warmup)
        refuse("--warmup and --after exclude each other") if @warmup && @after
        refuse_signal unless @after.nil? || Signal.list.key?(@after.delete_prefix("SIG"))
        return if @threshold.positive?

        raise Failure.new("--threshold: given #{@threshold}, allowed: a number of bytes above 0", USAGE)
      end

      def refuse_signal
        raise Failure.new("--after: given #{@after}, allowed: a signal's name, as USR2", USAGE)
      end

      def order
        { **super, threshold: @threshold, after: @after, warmup: (@warmup || WARM_UP unless @after) }
      end
    end
  end
end
