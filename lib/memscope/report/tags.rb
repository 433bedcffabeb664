# frozen_string_literal: true

module Memscope
  module Report
    # What the runs of each tag allocate and retain, one line for each tag.
    class TagsPage < ListPage
      # @param row [Tags::Row]
      # @return [String, nil] "2,987", "<120"; nil if it is unknown
      def self.retained(row)
        return decimal(row.retained_objects) if row.retained_objects

        row.retained_objects_below && "<#{decimal(row.retained_objects_below)}"
      end

      # @param number [Numeric]
      # @return [String] "2,987", "3.4"
      def self.decimal(number) = number.abs >= 10 ? Quantity.count(number.round) : format("%.1f", number)

      private

      def sections = @reading.known? ? [lede, table] : []

      def lede
        time = "in #{format('%.1f', @reading.seconds)} s; " if @reading.seconds
        ["  #{time}retained: objects of 1,000 runs, #{@page.plus_minus} one standard error;",
         "  objects and malloc bytes are those that a run allocates"]
      end

      def table
        @page.listing(["retained", @page.plus_minus, "runs", "objects", "malloc B", "live MiB", "tag"],
                      @reading.top(@limit).map { |row| [*cells(row), row.name] },
                      ends: true)
      end

      def cells(row)
        [self.class.retained(row) || @page.unknown, decimal(row.retained_objects_error), count(row.runs),
         decimal(row.allocated_objects), counted_cell(row.malloc_allocated_bytes), cell(row.live_bytes)]
      end

      def decimal(number) = number ? self.class.decimal(number) : @page.unknown

      def reasons = unavailable_together(@reading.reasons)

      def footer = (super unless @reading.seconds)
    end
  end
end
