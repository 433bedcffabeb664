# frozen_string_literal: true

module Memscope
  class Report
    # A Diff as a table: the rows of a ledger as a tree in MiB, other numbers one a line. What did not change is left
    # out, and of the rows what changed by less than 0.05 MiB.
    class Changes
      include Quantity

      NUMBER_WIDTH = 14
      private_constant :NUMBER_WIDTH

      # @param diff [Diff]
      # @param unicode [Boolean] false: plain ASCII
      def initialize(diff, unicode: Encoding.default_external == Encoding::UTF_8)
        @diff = diff
        @page = Page.new(unicode: unicode)
      end

      # @return [String]
      def to_s
        body = @diff.of == "ledger" ? row_lines : number_lines(@diff.changes)
        body = ["  nothing changed"] if body.empty?
        parts = [[title], body, reason_lines].reject(&:empty?)
        @page.encoded(parts.map { |lines| "#{lines.join("\n")}\n" }.join("\n"))
      end

      private

      def title
        @page.joined(["memscope #{@diff.memscope}", "#{@diff.of.tr('_', ' ')} of pid #{@diff.pid}",
                      "#{format('%.1f', @diff.seconds)} s later"])
      end

      def number_lines(changes, before = "")
        changes.flat_map do |change|
          path = "#{before}#{change.id}"
          next number_lines(change.changes, "#{path}.") unless change.changes.empty?

          change.delta.nil? || change.delta.zero? ? [] : [number_line(path, change.delta)]
        end
      end

      def number_line(path, delta)
        number = delta.is_a?(Integer) ? signed(delta) : format("%+.2f", delta)
        "#{number.rjust(NUMBER_WIDTH)} #{path.end_with?('_bytes') ? 'B' : ' '}  #{path}"
      end

      def row_lines
        lines = moved(@diff.rows).flat_map { |row| [row_line(row, row.label), *lines_below(row)] }
        ["MiB".rjust(NUMBER_WIDTH), *lines, *rss_line]
      end

      def lines_below(row)
        @page.branches(moved(row.changes)) { |part| moved(part.changes) }
             .map { |branches, part| row_line(part, " #{branches}#{part.label}") }
      end

      def rss_line
        rss = @diff[:rss_bytes]
        [row_line(rss, "= the change of RSS")] if rss.delta
      end

      def row_line(row, label)
        number = mebibytes(row.delta)
        number = "+#{number}" unless row.delta.negative? || number == "0.0"
        "#{number.rjust(NUMBER_WIDTH)}  #{label}"
      end

      # Those that print as more than 0.0.
      def moved(changes)
        changes.filter { |change| mebibytes(change.delta) != "0.0" || moved(change.changes).any? }
      end

      def reason_lines = @diff.reasons.map { |id, reason| @page.wrapped("#{id}: #{reason}") }
    end
  end
end
