# frozen_string_literal: true

require_relative "page"

module Memscope
  module Report
    # Objects by class or another grouping, one line for each row.
    class CensusPage < ReadingPage
      # Rows unless `limit` says how many.
      ROWS = 20
      # Headings of the first column's rows, by grouping.
      NAMES = { class: "class", type: "type", imemo: "kind", slot_size: "slot bytes", age: "age" }.freeze
      private_constant :NAMES

      # @param reading [Census, Census::Growth]
      # @param by [Symbol] as Census#by
      # @param limit [Integer] rows that are shown; the others are summed up
      # @param display [Hash{Symbol => Object}] as for ReadingPage
      def initialize(reading, by: :class, limit: ROWS, **display)
        super(reading, **display)
        @by = by
        @limit = limit
        @rows, @own = split(reading.by(by))
      end

      private

      # The rows, and those that are summed up as memscope's own.
      def split(rows) = [rows, []]

      def sections = @reading.known? ? [lede, table] : []

      def reasons = @reading.known? ? sentences : super

      def lede
        whole = "#{counted(@reading.total_count, 'objects')}: #{size(@reading.total_slot_bytes)} in slots, " \
                "#{size(@reading.total_memsize_bytes)} with malloc memory"
        garbage = "garbage included; gc: true (--gc) collects it first"
        garbage = "after a garbage collection" if @reading.collected?
        ["  #{whole}", "  #{count(@reading.total_old_count)} are old; #{garbage}"]
      end

      def headings = ["MiB", "in slots", "objects", "old"]

      def table
        shown = @rows.first(@limit)
        rest = @rows.drop(@limit)
        summed = { counted(rest.size, "others") => rest, "memscope's own classes" => @own }
        summed.delete_if { |_name, rows| rows.empty? }
        heading, *lines = @page.table(headings, [*shown.map { |row| cells(row) }, *summed.each_value.map { sums(_1) }])
        names = [*shown.map { |row| name(row) }, *summed.keys]
        ["#{heading}  #{NAMES.fetch(@by)}",
         *lines.zip(names).map { |line, name| @page.cut("#{line}  #{name}", @page.width).rstrip }]
      end

      # A name on one line, whatever its characters.
      def name(row) = row.name.gsub(/[[:cntrl:]]/, "?")

      def cells(row)
        [mebibytes(row.memsize_bytes), mebibytes(row.slot_bytes), count(row.count), count(row.old_count)]
      end

      def sums(rows)
        [mebibytes(rows.sum(&:memsize_bytes)), mebibytes(rows.sum(&:slot_bytes)), count(rows.sum(&:count)),
         count(rows.sum(&:old_count))]
      end
    end

    # What grew between two censuses, one line for each row.
    class CensusGrowthPage < CensusPage
      private

      # memscope loads code when it is first used, and keeps readings: neither is growth of the program.
      def split(rows) = rows.partition { |row| !row.name.match?(/\AMemscope\b/) }

      # A growth is computed from two readings: nothing was read for it.
      def footer = []

      def lede
        ["  in #{format('%.1f', @reading.seconds)} s: #{signed(@reading.total_count)} objects, " \
         "#{signed_mebibytes(@reading.total_slot_bytes)} MiB in slots, " \
         "#{signed_mebibytes(@reading.total_memsize_bytes)} MiB with malloc memory"]
      end

      def headings = ["+MiB", "in slots", "+objects", "+old", "objects"]

      def cells(row)
        [signed_mebibytes(row.memsize_bytes), signed_mebibytes(row.slot_bytes), signed(row.count),
         signed(row.old_count), count(row.later_count)]
      end

      def sums(rows)
        [signed_mebibytes(rows.sum(&:memsize_bytes)), signed_mebibytes(rows.sum(&:slot_bytes)),
         signed(rows.sum(&:count)), signed(rows.sum(&:old_count)), count(rows.sum(&:later_count))]
      end
    end
  end
end
