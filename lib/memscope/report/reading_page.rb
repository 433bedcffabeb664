# frozen_string_literal: true

module Memscope
  class Report
    # What the pages of readings of malloc have in common: a title, sections with a blank line between them, why
    # something is missing, and what it cost.
    class ReadingPage
      include Quantity

      # What a reason explains that is not a number of the page.
      TOLD = %i[epoch extension].freeze
      private_constant :TOLD

      # @param reading [Reading]
      # @param unicode [Boolean] false: plain ASCII
      def initialize(reading, unicode: Encoding.default_external == Encoding::UTF_8)
        @reading = reading
        @page = Page.new(unicode: unicode)
      end

      # @return [String]
      def to_s
        parts = [[title], *sections, reasons, [footer]].reject(&:empty?)
        @page.encoded(parts.map { |lines| "#{lines.join("\n")}\n" }.join("\n"))
      end

      private

      def title
        malloc = @reading.allocator
        @page.joined(["memscope #{@reading.memscope}", "ruby #{@reading.ruby}",
                      malloc == :unknown ? "what serves malloc is unknown" : "#{malloc} serves malloc",
                      "pid #{@reading.pid}", *("epoch #{@reading.epoch}" if @reading.epoch)])
      end

      def reasons
        @reading.reasons.slice(*TOLD, *explained).map { |id, why| @page.wrapped("#{id}: #{why}") }
      end

      # The fields without which there is nothing to print.
      def explained = []

      def footer
        cost = @reading.cost
        "  read in #{milliseconds(cost.wall_us)} (#{milliseconds(cost.gvl_us)} under the GVL)"
      end

      # In a column of MiB.
      def cell(bytes) = bytes ? mebibytes(bytes) : @page.unknown

      def counted_cell(number) = number ? count(number) : @page.unknown
    end
  end
end
