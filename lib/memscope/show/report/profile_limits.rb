# frozen_string_literal: true

module Memscope
  module Report
    # The limits of a ProfilePage's numbers: growth without samples, an order that may be chance, missed samples.
    module ProfileLimits
      # Growth outside of malloc, in bytes, that is worth a sentence.
      OUTSIDE_BYTES = 10 * Quantity::MEBIBYTE
      # A coverage above which older memory must have been freed.
      SURPLUS = 1.2
      private_constant :OUTSIDE_BYTES, :SURPLUS

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

        text(share > SURPLUS ? :surplus : :coverage, share: format("%.0f", 100 * share))
      end

      def unseen_calls
        grown = @reading.allocator_grown_bytes or return
        seen = @reading.live_bytes + @reading.own_bytes.to_i
        # The root: the error of the samples that so much growth leads to.
        return unless grown - seen >= [Quantity::MEBIBYTE, 3 * Math.sqrt([grown, 0].max * @reading.rate_bytes)].max

        text(:unseen_calls, grown: size(grown), seen: size([seen, 0].max))
      end

      def outside_malloc
        grown = @reading.rss_grown_bytes or return
        malloc = [@reading.allocator_grown_bytes || @reading.live_bytes, 0].max
        return unless grown - malloc >= [OUTSIDE_BYTES, grown / 10].max

        text(:outside_malloc, grown: size(grown), malloc: size(malloc), pid: @reading.pid)
      end

      # The samples and frees that were missed, and what sampling adds to the allocator's own numbers.
      def flaws
        dropped, lost, added = %i[dropped_samples lost_frees inflated_bytes].map do |name|
          @reading.overhead.public_send(name).to_i
        end
        [*(text(:dropped, samples: counted(dropped, "samples")) if dropped.positive?),
         *(text(:lost, frees: counted(lost, "frees")) if lost.positive?),
         *(text(:added, bytes: size(added)) if added.positive?)]
      end
    end
  end
end
