# frozen_string_literal: true

module Memscope
  module Report
    # The numbers beside the places of a ProfilePage.
    module ProfileColumns
      # MiB, ±, samples, share; of objects, their number before the samples.
      WIDTHS = [10, 8, 10, 9].freeze
      OBJECT_WIDTHS = [9, 7, 11, 9, 9].freeze
      # The numbers of several entries.
      Sum = Struct.new(:live_bytes, :error_bytes, :live_objects, :samples, :share)
      # Says why some lines have no estimate.
      FEW = "Where there is no estimate, there are too few samples for one."
      private_constant :WIDTHS, :OBJECT_WIDTHS, :Sum

      private

      def heading
        line(["MiB", @page.plus_minus, *("objects" if @reading.objects?), "samples", @signed ? "growth" : "share"], "")
      end

      def widths = @reading.objects? ? OBJECT_WIDTHS : WIDTHS

      # `sum`: an Entry or a Sum.
      def row(sum, text)
        @few ||= !estimated?(sum)
        before = estimated?(sum) ? estimates(sum) : [""] * (widths.size - 2)
        share = format("%.1f %%", 100 * sum.share) if sum.share && estimated?(sum)
        line([*before, number(sum.samples), share.to_s], text)
      end

      def estimates(sum)
        [@signed ? signed_mebibytes(sum.live_bytes) : mebibytes(sum.live_bytes), mebibytes(sum.error_bytes),
         *(number(sum.live_objects) if @reading.objects?)]
      end

      def number(number) = @signed ? signed(number) : count(number)

      def line(numbers, text)
        "#{numbers.zip(widths).map { |number, width| number.rjust(width) }.join}  #{text}".rstrip
      end

      def estimated?(sum) = @reading.estimated?(sum.samples)

      # Whether a row has shown no estimate.
      def few? = @few

      def sum(entries)
        shares = entries.filter_map(&:share)
        Sum.new(entries.sum(&:live_bytes), Integer.sqrt(entries.sum { |entry| entry.error_bytes**2 }),
                entries.sum(&:live_objects), entries.sum(&:samples), (shares.sum if shares.any?))
      end
    end
  end
end
