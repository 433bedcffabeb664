# frozen_string_literal: true

module Memscope
  class Report
    # How a malloc profile was measured, how much of malloc it covers, and what that costs.
    class ProfileFooter
      include Quantity

      BACKENDS = { jemalloc: "jemalloc's profiler", imports: "patched imports" }.freeze
      private_constant :BACKENDS

      # @param profile [Profile, Profile::Difference]
      # @param page [Page]
      def initialize(profile, page)
        @profile = profile
        @page = page
      end

      # @return [Array<String>]
      def lines = sentences.map { |text| @page.wrapped(text) }

      # @return [Array<String>]
      def sentences
        return [rate] if @profile.difference?

        [[rate, coverage].compact.join(" "), [*cost, *flaws].join(" ")]
      end

      private

      def rate
        "One sample for each #{size(@profile.rate_bytes)} that is allocated, on average, taken by " \
          "#{BACKENDS.fetch(@profile.backend)}. \"Give or take\" is one standard error: the truth is within three of " \
          "them as good as always."
      end

      def coverage
        share = @profile.coverage
        "The samples account for #{format('%.0f', 100 * share)} % of what the allocator's own count grew by." if share
      end

      def cost
        overhead = @profile.overhead
        ["#{counted(overhead.samples_taken, 'samples')} took #{milliseconds(overhead.nanoseconds / 1000)} " \
         "and #{size(overhead.table_bytes)} for tables; " \
         "profiling #{@profile.running? ? 'goes on' : 'has ended'}."]
      end

      # What went wrong, or distorts other numbers.
      def flaws
        overhead = @profile.overhead
        [("#{counted(overhead.dropped_samples, 'samples')} had no room and are missing." if
           overhead.dropped_samples.positive?),
         ("#{counted(overhead.lost_frees, 'frees')} came too late to be noticed: their blocks may count as living." if
           overhead.lost_frees.positive?),
         ("Sampling itself adds #{size(overhead.inflated_bytes)} to what jemalloc calls active." if
           overhead.inflated_bytes&.positive?)].compact
      end
    end
  end
end
