# frozen_string_literal: true

module Memscope
  class Report
    # A table of text: columns right-aligned under their headings, as far apart as the page allows.
    class Columns
      # @param headings [Array<String>]
      # @param rows [Array<Array<String>>] each as long as the headings
      def initialize(headings, rows)
        @rows = [headings, *rows]
        @widths = @rows.transpose.map { |column| column.map(&:length).max }
      end

      # @return [Array<String>]
      def lines
        @rows.map { |row| row.zip(@widths).map { |text, width| "#{gap}#{text.rjust(width)}" }.join.rstrip }
      end

      private

      # Two blanks before each column; one where that is too wide for the page.
      def gap = @widths.sum + (2 * @widths.length) <= Page::WIDTH ? "  " : " "
    end
  end
end
