# frozen_string_literal: true

module Memscope
  module Report
    # The limits of a ProfilePage's numbers: growth without samples, an order that may be chance, missed samples.
    module ProfileLimits
      # Growth outside of malloc, in bytes, that is worth a sentence.
      OUTSIDE_BYTES = 10 * Quantity::MEBIBYTE
      # A coverage above which older memory must have been freed.
      SURPLUS = 1.2
      LATE = "Missed %s of sampled blocks; each block counted as live until its " \
             "address was sampled again."
      private_constant :OUTSIDE_BYTES, :SURPLUS, :LATE

      # One or two sentences on growth that the samples do not account for.
      def unseen = [*(unseen_calls if @reading.backend == :imports), *outside_malloc]

      # A sentence if the order of the first entries may be chance.
      def chance
        entries = shown.select { |entry| estimated?(entry) }
        tie(entries.map { |entry| [rank(entry), entry.error_bytes] }, noun([]))
      end

      private

      def coverage
        share = @reading.coverage or return

        freed = ", since older memory was freed in the meantime" if share > SURPLUS
        "The samples account for #{format('%.0f', 100 * share)} % of the growth in the allocator's own count#{freed}."
      end

      def unseen_calls
        grown = @reading.allocator_grown_bytes or return
        seen = @reading.live_bytes + @reading.own_bytes.to_i
        # The root: the error of the samples that so much growth leads to.
        return unless grown - seen >= [Quantity::MEBIBYTE, 3 * Math.sqrt([grown, 0].max * @reading.rate_bytes)].max

        "Memory in use in malloc grew by #{size(grown)} while the profile ran; the samples account for " \
          "#{size([seen, 0].max)}. The rest was allocated by calls that the backend imports misses: through FFI, " \
          "dlsym or the C library itself. jemalloc's profiler sees them: memscope exec --profile -- COMMAND."
      end

      def outside_malloc
        grown = @reading.rss_grown_bytes or return
        malloc = [@reading.allocator_grown_bytes || @reading.live_bytes, 0].max
        return unless grown - malloc >= [OUTSIDE_BYTES, grown / 10].max

        "RSS grew by #{size(grown)} while the profile ran, and memory in use in " \
          "malloc by #{size(malloc)}: the rest is in Ruby's heap, stacks, mappings " \
          "or free memory, which no malloc profile sees (memscope report --pid " \
          "#{@reading.pid})."
      end

      # The samples and frees that were missed, and what sampling adds to the allocator's own numbers.
      def flaws
        dropped, lost, added = %i[dropped_samples lost_frees inflated_bytes].map do |name|
          @reading.overhead.public_send(name).to_i
        end
        [*("#{counted(dropped, 'samples')} had no room and are missing." if dropped.positive?),
         *(LATE % counted(lost, "frees") if lost.positive?),
         *("Sampling itself adds #{size(added)} to jemalloc's active bytes." if added.positive?)]
      end
    end
  end
end
