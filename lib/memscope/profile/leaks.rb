# frozen_string_literal: true

require_relative "../report/quantity"

module Memscope
  class Profile < Reading
    # The memory, or the objects, that a program allocated after its warm-up and still holds at its end, judged line by
    # line against a threshold. Loaded code and caches filled during the warm-up do not count.
    #
    # A line of an object profile grows only if it still holds objects from both halves of the time after the warm-up,
    # counted in generations. A cache that was filled once after the warm-up, or that keeps only the newest objects,
    # does not grow.
    #
    # An estimate has to exceed the threshold by two of its standard errors; by chance alone, that happens in at most
    # one case in forty.
    #
    # @api private
    class Leaks
      include Report::Quantity

      ERRORS = 2
      # The fewest generations that have two halves to compare.
      GENERATIONS = 4
      private_constant :ERRORS, :GENERATIONS

      # @return [Profile] the part of the profile that was allocated between the warm-up and the program's end
      attr_reader :profile

      # @param whole [Profile]
      # @param warm [Integer, nil] the generation that began when the warm-up ended; nil if it has not ended
      # @param ended [Integer] the generation that began when the program ended
      # @param threshold [Integer] in bytes; for a profile of objects, in objects
      def initialize(whole, warm:, ended:, threshold:)
        @threshold = threshold
        @judged = !warm.nil? && ended > warm
        @profile = whole.part((warm || ended)...ended)
      end

      # @param holders [Array<Holder>] what holds the objects of `entries`
      # @return [self]
      def held_by(holders)
        @profile = @profile.held_by(holders)
        self
      end

      # @return [Boolean] whether the program outlived its warm-up
      def judged? = @judged

      # @return [Boolean]
      def any? = entries.any?

      # @return [Array<Entry>] lines that grew past the threshold, the largest first
      def entries
        @entries ||= profile.by(:line).select { |entry| exceeds?(entry) && grows?(entry) }
      end

      # @return [String] one sentence
      def verdict
        return "nothing is judged: the program ended within its warm-up (--warmup SECONDS)" unless judged?
        return "no line grew past #{amount(@threshold)}" unless any?

        "#{entries.one? ? 'one line' : "#{entries.size} lines"} grew past #{amount(@threshold)}: " \
          "#{entries.map { |entry| leak(entry) }.join('; ')}"
      end

      private

      def amount(number) = profile.objects? ? counted(number, "objects") : size(number)

      def exceeds?(entry)
        error = profile.objects? ? entry.error_objects : entry.error_bytes
        kept(entry) - (ERRORS * error) > @threshold
      end

      def kept(entry) = profile.objects? ? entry.live_objects : entry.live_bytes

      def grows?(entry)
        return true unless profile.objects?

        known = profile.stacks.map(&:generation).uniq.sort
        return true if known.size < GENERATIONS

        halves = entry.generations.keys.partition { |generation| generation < known[known.size / 2] }
        halves.none?(&:empty?)
      end

      def held(entry) = profile.holder(entry)&.then { |holder| ", held by #{holder.to_s(unicode: false)}" }

      def leak(entry)
        (place,), *others = entry.callers
        "#{profile.local(entry.to_s)} by #{amount(kept(entry))}#{" (#{entry.native})" if entry.native}" \
          "#{", called from #{profile.local(place)}" if place}" \
          "#{" and #{counted(others.size, 'other lines')}" if others.any?}#{held(entry)}"
      end
    end
  end
end
