# frozen_string_literal: true

module Memscope
  module Report
    # A measurement: the totals, the classes and lines that retain and allocate most, the changes of the ledger's rows.
    class MeasurementPage < ListPage
      COLUMNS = [["retained B", :retained_bytes], ["objects", :retained_objects],
                 ["allocated B", :allocated_bytes], ["objects", :allocated_objects]].freeze
      VIEW = { limit: 10 }.freeze

      private

      def sections
        peak = say(:peak, bytes: size(@reading.peak_bytes)) if @reading.peak_bytes
        [(totals if @reading.known?), peak, *listings, ledger]
      end

      def totals
        pairs = { "objects" => %i[allocated_objects retained_objects], "bytes" => %i[allocated_bytes retained_bytes],
                  "malloc bytes" => %i[malloc_allocated_bytes malloc_retained_bytes] }
        rows = pairs.map { |name, fields| [*fields.map { |field| counted_cell(@reading.public_send(field)) }, name] }
        @page.listing(["allocated", "retained", ""], rows)
      end

      def listings
        { "class" => @reading.classes.to_a, "line" => @reading.lines.to_a }.map do |name, rows|
          groups = summed(rows, "more").map { |row, some| [row.is_a?(String) ? row : row.name, some] }
          sums(COLUMNS, name, groups, long: :end) if rows.any?
        end
      end

      def ledger
        return unless @reading.rows&.part(:rows)

        DiffPage.new(@reading.rows, unicode: @page.unicode?, width: @page.width).lines
      end

      def reasons = unavailable(@reading.reasons.except(:names))
    end
  end
end
