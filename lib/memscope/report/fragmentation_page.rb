# frozen_string_literal: true

require_relative "reading_page"

module Memscope
  class Report
    # The three ratios, each with what it is of; then what is free and still resident, by what gives it back.
    class FragmentationPage < ReadingPage
      # How many sizes of slabs are told.
      SIZES = 8
      WHERE = { rss_bytes: "of the process", resident_bytes: "in malloc", active_bytes: "in pages in use",
                allocated_bytes: "given out" }.freeze
      private_constant :SIZES, :WHERE

      private

      def sections = @reading.known? ? [ratios, split] : []

      def explained = %i[rss_bytes allocator jemalloc classes deep compactable_bytes]

      def ratios
        [ratio("RSS / resident", :rss_to_resident, :rss_bytes, :resident_bytes),
         ratio("resident / active", :resident_to_active, :resident_bytes, :active_bytes),
         ratio("active / allocated", :active_to_allocated, :active_bytes, :allocated_bytes)].compact
      end

      def ratio(name, ratio, *parts)
        value = @reading.public_send(ratio)
        return unless value

        "  #{name.ljust(19)}#{format('%.2f', value).rjust(6)}   #{parts.map { |part| described(part) }.join(' over ')}"
      end

      def described(part) = "#{size(@reading.public_send(part))} #{WHERE.fetch(part)}"

      def split
        ["      MiB   free, and still resident",
         line(cell(@reading.purgeable_bytes), "purgeable now: Memscope.purge(#{lever.inspect})"),
         line(range, "#{'at most, ' unless @reading.compactable_min_bytes}#{compaction}"),
         line(cell(@reading.stuck_bytes), stuck), *sizes]
      end

      def lever = @reading.allocator == :glibc ? :trim : :purge

      def line(number, meaning) = "#{number.rjust(9)}   #{meaning}"

      def range
        least, most = [@reading.compactable_min_bytes, @reading.compactable_bytes].map { |bytes| cell(bytes) }
        least == most || least == @page.unknown ? most : "#{least}-#{most}"
      end

      def compaction
        return "returned by compaction of Ruby's heap" unless @reading.reasons[:compactable_bytes]

        "in pages of Ruby's heap that a compaction would empty"
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
