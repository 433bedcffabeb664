# frozen_string_literal: true

require_relative "../profile"
require_relative "../report"

module Memscope
  class Profile < Reading
    # What a program has kept of all that it allocated after its warm-up, which is generation 0, judged against a
    # threshold for each line. What is there from the warm-up on, as code that was loaded and caches that are full, does
    # not count.
    #
    # An estimate has to exceed the threshold by two of its standard errors: then chance alone is to blame in one of
    # forty cases at most.
    #
    # @api private
    class Leaks
      include Report::Quantity

      ERRORS = 2
      private_constant :ERRORS

      # @return [Profile] of what was allocated after the warm-up
      attr_reader :profile

      # @param whole [Profile]
      # @param ended [Integer] the generation that began when the program had ended
      # @param threshold_bytes [Integer]
      def initialize(whole, ended:, threshold_bytes:)
        @threshold = threshold_bytes
        @judged = ended > 1
        @profile = between(whole, 1...ended)
      end

      # @return [Boolean] whether the program lived longer than its warm-up
      def judged? = @judged

      # @return [Boolean]
      def any? = entries.any?

      # @return [Array<Entry>] lines that grew past the threshold, the largest first
      def entries
        @entries ||= profile.by(:line).select do |entry|
          entry.live_bytes - (ERRORS * entry.error_bytes) > @threshold
        end
      end

      # @return [String] one sentence
      def verdict
        return "nothing is judged: the program ended within its warm-up (--warmup SECONDS)" unless judged?
        return "no line grew past #{size(@threshold)}" unless any?

        "#{entries.one? ? 'one line' : "#{entries.size} lines"} grew past #{size(@threshold)}: " +
          entries.map { |entry| "#{entry} by #{size(entry.live_bytes)}#{" (#{entry.native})" if entry.native}" }
                 .join("; ")
      end

      private

      def between(whole, generations)
        stacks = whole.stacks.select { |stack| generations.cover?(stack.generation) }
        Profile.from_h({ **whole.to_h, generation: generations.end - 1, stacks: stacks.map(&:to_h), coverage: nil,
                                       live_bytes: stacks.sum(&:live_bytes), samples: stacks.sum(&:samples),
                                       error_bytes: Integer.sqrt(stacks.sum { |stack| stack.error_bytes**2 }) })
      end
    end
  end
end
