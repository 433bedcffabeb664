# frozen_string_literal: true

module Memscope
  class Report
    # The rows of a ledger: MiB, percent of RSS, the tree, and what there is of each.
    class Table
      include Quantity

      NUMBER_WIDTH = 9
      PERCENT_WIDTH = 9
      DETAIL_COLUMN = 42
      private_constant :NUMBER_WIDTH, :PERCENT_WIDTH, :DETAIL_COLUMN

      # @param ledger [Ledger]
      # @param page [Page]
      def initialize(ledger, page)
        @ledger = ledger
        @page = page
        @sharing = ledger.rows.any?(&:shared_bytes)
        @detail_column = DETAIL_COLUMN + (@sharing ? NUMBER_WIDTH + 2 : 0)
        @number_width = [NUMBER_WIDTH, *numbers(ledger.rows).map { |bytes| mebibytes(bytes).length + 2 }].max
      end

      # @return [Array<String>]
      def lines
        [line("MiB", "of RSS", heading), *@ledger.rows.filter { |row| shown?(row) }.flat_map { |row| row_lines(row) },
         line(mebibytes(sum), percent(sum), "#{shared(shared_sum)}#{closing}")]
      end

      private

      # All that stand in the first column.
      def numbers(rows) = rows.empty? ? [sum] : rows.flat_map { |row| [row.bytes, *numbers(row.children)] }

      # A row of zero says nothing, except that nothing is unattributed.
      def shown?(row) = !row.bytes.zero? || row.id == :unattributed || row.children.any? { |child| shown?(child) }

      def row_lines(row)
        below = @page.branches(shown_children(row)) { |child| shown_children(child) }
        [line(mebibytes(row.bytes), percent(row.bytes), "#{shared(row.shared_bytes)}#{row.label}", items(row)),
         *below.map do |branches, child|
           line(mebibytes(child.bytes), "", "#{shared(child.shared_bytes)} #{branches}#{child.label}", items(child))
         end]
      end

      def heading = @sharing ? "shared".rjust(NUMBER_WIDTH) : ""

      # A column of its own, in MiB, where it was asked for.
      def shared(bytes)
        "#{(bytes ? mebibytes(bytes) : @page.unknown).rjust(NUMBER_WIDTH)}  " if @sharing
      end

      def shown_children(row) = row.children.filter { |child| shown?(child) }

      def line(number, percent, label, items = [])
        text = "#{number.rjust(@number_width)}#{percent.rjust(PERCENT_WIDTH)}  #{label}"
        "#{text}#{fitting(items, text.length)}"[0, Page::WIDTH].rstrip
      end

      def items(row) = RowItems.of(row)

      # As many items as there is room for, in a column of their own; where not even one fits there, behind the text.
      def fitting(items, length)
        gaps = [[@detail_column - length, 2].max, 2]
        choices = gaps.flat_map do |gap|
          items.length.downto(1).map { |number| "#{' ' * gap}#{items.first(number).join(', ')}" }
        end
        choices.find { |text| length + text.length <= Page::WIDTH }
      end

      def percent(bytes) = @ledger.rss_bytes.zero? ? "" : format("%.1f %%", 100.0 * bytes / @ledger.rss_bytes)

      def sum = @ledger.rows.sum(&:bytes)

      # nil where it is not known of some row.
      def shared_sum
        parts = @ledger.rows.map(&:shared_bytes)
        parts.sum unless parts.include?(nil)
      end

      def closing
        difference = sum - @ledger.rss_bytes
        return "= RSS of this reading, to the byte" if difference.zero?

        "the sum; RSS of this reading is #{exact(difference.abs)} #{difference.positive? ? 'less' : 'more'}"
      end
    end
  end
end
