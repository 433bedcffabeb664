# frozen_string_literal: true

require_relative "columns"
require_relative "reading_page"

module Memscope
  class Report
    # Ruby's heap by slot size: pages and slots, and what compaction could empty; then how full the pages are.
    class RubyHeapTable < ReadingPage
      HEADINGS = ["slot", "pages", "slots", "live", "free", "live %", "MiB compactable"].freeze
      private_constant :HEADINGS

      private

      def sections = @reading.pages ? [table, tenths] : []

      def explained = @reading.reasons.keys

      def title = @page.joined(["memscope #{@reading.memscope}", "ruby #{@reading.ruby}", "pid #{@reading.pid}"])

      def table
        Columns.new(HEADINGS, [*@reading.slot_sizes.map { |size| row(count(size.slot_size), size) },
                               row("all", @reading)]).lines
      end

      def row(name, slots)
        [name, *[slots.pages, slots.slots, slots.live_slots, slots.free_slots].map { |number| counted_cell(number) },
         slots.occupancy ? format("%.0f", 100 * slots.occupancy) : @page.unknown,
         compactable(slots.compactable_min_bytes, slots.compactable_bytes)]
      end

      def compactable(least, most)
        [least, most].uniq.map { |bytes| cell(bytes) }.uniq.join(" to ")
      end

      def tenths
        ["  pages by how many of their slots are live, from less than a tenth on:",
         "  #{@reading.pages_by_tenths.map { |pages| count(pages) }.join('  ')}"]
      end
    end
  end
end
