# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope leaks -- COMMAND`: becomes a Ruby program that fails if one of its lines keeps too much memory that it
    # allocated after the warm-up; with --objects, too many Ruby objects.
    class LeaksCommand < ProfileCommand
      # Defaults: bytes between samples, and bytes that a line may keep.
      RATE = 1 << 12
      THRESHOLD = 1 << 20
      # Defaults with --objects: objects that a line may keep, and the share of CPU time; 1 watches every allocation.
      OBJECTS = 10_000
      BUDGET = 1
      # The default warm-up, in seconds.
      WARM_UP = 1.0
      NOTES = <<~TEXT
        When COMMAND ends, memscope collects garbage and prints, by line, the live
        memory that was allocated after the warm-up. The exit status is COMMAND's own. If
        that is 0, it becomes 1 if the estimate for a line exceeds the threshold by more
        than two standard errors, 74 if COMMAND ended during the warm-up.

        COMMAND should repeat the same work. The warm-up ends after --warmup seconds or,
        without --objects, when COMMAND calls Memscope::MallocProfile.next_generation.
        The report goes to standard error, or to FILE; the verdict to standard error.
        Neither covers child processes.

        With --objects, a line fails if the number of Ruby objects that it keeps exceeds
        the threshold, and the first and the second half of the time after the warm-up
        both added some. The verdict says what holds them.
      TEXT
      FORMS = {
        program: { summary: "run a Ruby program, and fail if its malloc memory or objects grow",
                   example: "memscope leaks --threshold=200000 --warmup=2 -- bundle exec ruby test/leaks.rb\n  " \
                            "memscope leaks --objects --warmup=2 -- bundle exec ruby test/leaks.rb",
                   notes: NOTES, defaults: { **DEFAULTS, rate: RATE },
                   options: [*SAMPLING,
                             ["--threshold NUMBER", OptionParser::DecimalInteger,
                              Limit.new(:positive?.to_proc, "a number above 0"), "the most bytes that a line may keep",
                              "(default: 1048576); with --objects, the most", "objects (default: 10000)"],
                             ["--warmup SECONDS", Float, SECONDS, "ignore the first SECONDS (default: 1)"]] }
      }.freeze
      private_constant :FORMS, :RATE, :THRESHOLD, :OBJECTS, :BUDGET, :WARM_UP, :NOTES

      private

      def threshold = @given.fetch(:threshold, objects? ? OBJECTS : THRESHOLD)

      def objects_options = { **super, budget: @given.fetch(:budget, BUDGET) }

      def order = { **super, threshold: threshold, warmup: @given.fetch(:warmup, WARM_UP) }
    end
  end
end
