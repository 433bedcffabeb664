# frozen_string_literal: true

module Memscope
  module Report
    # The memory that the runs of each tag allocate and retain, one line for each tag.
    class TagsPage < ListPage
      # "2,987", "3.4"
      def self.decimal(number) = number.abs >= 10 ? Quantity.count(number.round) : format("%.1f", number)

      private

      def sections = @reading.known? ? [lede, [table, *chance]] : []

      def lede = text(:runs, sign: @page.plus_minus).lines(chomp: true).map { |line| "  #{line}" }

      def table
        rows = @reading.top(@limit)
        @page.listing(["retained", @page.plus_minus, "runs", "objects", "malloc B", "live MiB", "tag"],
                      rows.map { |row| [*cells(row), row.name] }, long: :end, keys: rows.map(&:name))
      end

      # Tags are sorted by the objects that all of their runs retain.
      def chance
        retained = @reading.rows.map { |row| [row.retained_objects, row.retained_objects_error, row.runs] }
        known = retained.take_while(&:all?).first(@limit)
        tie(known.map { |number, error, runs| [number * runs, error * runs] }, "tags")
      end

      def cells(row)
        [decimal(row.retained_objects), decimal(row.retained_objects_error), count(row.runs),
         decimal(row.allocated_objects), counted_cell(row.malloc_allocated_bytes), cell(row.live_bytes)]
      end

      def decimal(number) = number ? self.class.decimal(number) : @page.unknown

      def reasons = unavailable(@reading.reasons)
    end
  end
end
