# frozen_string_literal: true

require_relative "../profile"
require_relative "../report/quantity"

module Memscope
  class Profile < Reading
    # The memory that a program allocated after its warm-up and still holds at its end, judged line by line against a
    # threshold. The warm-up is generation 0: loaded code and filled caches do not count.
    #
    # An estimate has to exceed the threshold by two of its standard errors; by chance alone, that happens in at most
    # one case in forty.
    #
    # @api private
    class Leaks
      include Report::Quantity

      ERRORS = 2
      private_constant :ERRORS

      # @return [Profile] the part of the profile that was allocated between the warm-up and the program's end
      attr_reader :profile

      # @param whole [Profile]
      # @param ended [Integer] the generation that began when the program ended
      # @param threshold_bytes [Integer]
      def initialize(whole, ended:, threshold_bytes:)
        @threshold = threshold_bytes
        @judged = ended > 1
        @profile = between(whole, 1...ended)
      end

      # @return [Boolean] whether the program outlived its warm-up
      def judged? = @judged

      # @return [Boolean]
      def any? = entries.any?

      # @return [Array<Entry>] lines that grew past the threshold, the largest first
      def entries
        @entries ||= profile.by(:line).select { |entry| entry.live_bytes - (ERRORS * entry.error_bytes) > @threshold }
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
