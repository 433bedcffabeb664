# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # The memory, or the objects, that a program allocated after its warm-up and still holds at its end, judged line by
    # line against a threshold. Loaded code and caches filled during the warm-up do not count.
    #
    # A line of an object profile grows only if it still holds objects from both halves of the time after the warm-up,
    # counted in generations. A cache that was filled once after the warm-up, or that keeps only the newest objects,
    # does not grow.
    #
    # An estimate has to exceed the threshold by two of its standard errors. By chance alone, that happens in at most
    # one case in forty.
    # @api private
    class Leaks
      include Quantity

      WORDS = Words.beside(__FILE__)
      ERRORS = 2
      # Fewer generations have no two halves to compare.
      GENERATIONS = 4

      # @return [Profile] the part of the profile that was allocated between the warm-up and the program's end
      attr_reader :profile

      # `warm` and `ended` are the generations that began when the warm-up (nil if it has not) and the program ended.
      # `threshold` is in bytes or, for a profile of objects, in objects.
      def initialize(whole, warm:, ended:, threshold:)
        @threshold = threshold
        @judged = !warm.nil? && ended > warm
        @profile = whole.part((warm || ended)...ended)
      end

      def held_by(holders) = tap { @profile = @profile.held_by(holders) }

      # :leak, :steady or, if the program did not outlive its warm-up, :too_early.
      def verdict
        return :too_early unless @judged

        entries.any? ? :leak : :steady
      end

      def entries = @entries ||= profile.by(:line).select { |entry| exceeds?(entry) && grows?(entry) }

      def to_s
        WORDS.fill(verdict, number: entries.one? ? "one line" : "#{entries.size} lines", threshold: amount(@threshold),
                            lines: entries.map { |entry| leak(entry) }.join("; "), tie: (WORDS[:tie] if tied?))
      end

      private

      def kept(entry) = profile.objects? ? entry.live_objects : entry.live_bytes

      def error(entry) = profile.objects? ? entry.error_objects : entry.error_bytes

      def exceeds?(entry) = kept(entry) - (ERRORS * error(entry)) > @threshold

      # True if chance alone can have put the first line before the second.
      def tied?
        first, second = entries
        second && kept(first) - kept(second) <= ERRORS * Math.hypot(error(first), error(second))
      end

      def grows?(entry)
        return true unless profile.objects?

        known = profile.stacks.map(&:generation).uniq.sort
        return true if known.size < GENERATIONS

        entry.generations.keys.partition { |generation| generation < known[known.size / 2] }.none?(&:empty?)
      end

      def leak(entry)
        (place,), *others = entry.callers
        ["#{profile.local(entry.to_s)} by #{amount(kept(entry))}", (" (#{entry.native})" if entry.native),
         (WORDS.fill(:called, place: profile.local(place)) if place),
         (" and #{counted(others.size, 'other lines')}" if others.any?),
         profile.holder(entry)&.then { |holder| WORDS.fill(:held, holder: holder.to_s(unicode: false)) }].join
      end

      def amount(number) = profile.objects? ? counted(number, "objects") : size(number)
    end
  end
end
