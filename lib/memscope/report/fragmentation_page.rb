# frozen_string_literal: true

require_relative "reading_page"

module Memscope
  class Report
    # The three ratios, each with what it is of; then what is free and still resident, by what gives it back.
    class FragmentationPage < ReadingPage
      # How many sizes of slabs are told.
      SIZES = 8
      private_constant :SIZES

      private

      def sections = @reading.known? ? [ratios, split] : []

      def explained = %i[rss_bytes allocator jemalloc classes deep]

      def ratios
        reading = @reading
        [ratio("RSS / resident", reading.rss_to_resident, reading.rss_bytes, "of the process", reading.resident_bytes,
               "in malloc"),
         ratio("resident / active", reading.resident_to_active, reading.resident_bytes, "in malloc",
               reading.active_bytes, "in pages in use"),
         ratio("active / allocated", reading.active_to_allocated, reading.active_bytes, "in pages in use",
               reading.allocated_bytes, "given out")].compact
      end

      def ratio(name, value, whole, of_whole, part, of_part)
        return unless value

        "  #{name.ljust(19)}#{format('%.2f', value).rjust(6)}   #{size(whole)} #{of_whole} over #{size(part)} #{of_part}"
      end

      def split
        ["      MiB   free, and still resident",
         line(cell(@reading.purgeable_bytes), "purgeable now: `memscope purge`"),
         line(range, "#{'at most, ' unless @reading.compactable_min_bytes}returned by compaction of Ruby's heap"),
         line(cell(@reading.stuck_bytes), stuck), *sizes]
      end

      def line(number, meaning) = "#{number.rjust(9)}   #{meaning}"

      def range
        least, most = [@reading.compactable_min_bytes, @reading.compactable_bytes].map { |bytes| cell(bytes) }
        least == most || least == @page.unknown ? most : "#{least}-#{most}"
      end

      def stuck
        place = @reading.allocator == :jemalloc ? "slabs" : "pages"
        "stuck until whole #{place} are free, or a restart"
      end

      def sizes
        shown = @reading.stuck.first(SIZES)
        lines = shown.map do |stuck|
          "#{' ' * 12}#{mebibytes(stuck.stuck_bytes).rjust(9)} in #{count(stuck.size_bytes)}-byte slabs, " \
            "#{(100 * stuck.utilisation).round} % used"
        end
        [*lines, *others(@reading.stuck.drop(SIZES))]
      end

      def others(sizes)
        return [] if sizes.empty?

        ["#{' ' * 12}#{mebibytes(sizes.sum(&:stuck_bytes)).rjust(9)} in slabs of #{counted(sizes.size, 'other sizes')}"]
      end
    end
  end
end
