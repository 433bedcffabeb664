# frozen_string_literal: true

require_relative "../show/report/heap_graph"

module Memscope
  module CLI
    # What grew from an earlier heap graph of a process to a later one: by the paths where memory has accumulated, and
    # by class. If the earlier graph lists only the largest, what it does not list counts there with the smallest number
    # that it lists: so no growth is overstated.
    class HeapSincePage < Report::HeapPage
      # @param reading [HeapGraph] the later one
      # @param since [HeapGraph] the earlier one
      # @param limit [Integer] rows of each list
      # @param display [Hash{Symbol => Object}] as for ReadingPage
      def initialize(reading, since:, limit:, **display)
        @since = since
        @limit = limit
        super(reading, **display)
      end

      private

      def sections = [*lacking, totals, paths, classes]

      def totals
        span = Quantity.duration(@reading.at - @since.at)
        changes = %i[reachable garbage].map do |part|
          objects, bytes = [:"#{part}_count", :"#{part}_bytes"].map { |name| change(name) }
          "#{part}: #{objects ? "#{signed(objects)} objects, #{signed_mebibytes(bytes)} MiB" : 'unknown'}"
        end
        of = " since the report of process #{@since.pid}" unless @since.pid == @reading.pid
        @page.wrapped("in #{span}#{of}: #{changes.join('; ')}")
      end

      def change(name)
        later, earlier = [@reading, @since].map(&name)
        later && earlier && (later - earlier)
      end

      def paths
        rows = grown(@reading.paths, @since.paths, @since.path_count, :accumulated_bytes, &:to_s)
        return @page.wrapped("no path where memory has accumulated grew") if rows.empty?

        paths_under("more, by what retains it", rows.map { |bytes, path| [bytes, path] })
      end

      def classes
        rows = grown(of_others(@reading.retained), @since.retained, nil, :retained_bytes, &:name)
        scale = Quantity::Scale.of(rows.map(&:first))
        before = @since.retained.to_h { |row| [row.name, row] }
        lines = rows.reject { |bytes, _row| scale.tiny?(bytes) }.map do |bytes, row|
          [scale.signed(bytes), *own(row, before[row.name], scale), Terms.explained(row.name)]
        end
        @page.listing(["+#{scale.unit} retained", "+#{scale.unit} own", "+objects", "class"], lines) if lines.any?
      end

      def own(row, earlier, scale)
        return [@page.unknown] * 2 unless earlier

        [scale.signed(row.bytes - earlier.bytes), signed(row.count - earlier.count)]
      end

      # The rows that grew, each with by how much, the most first.
      #
      # @param all [Integer, nil] how many rows the earlier list would have, uncut; nil if unknown
      def grown(later, earlier, all, field, &name)
        before = earlier.group_by(&name).transform_values { |rows| rows.sum(&field) }
        floor = all == earlier.size ? 0 : earlier.map(&field).min.to_i
        rows = later.uniq(&name).map { |row| [row.public_send(field) - before.fetch(yield(row), floor), row] }
        rows.select { |bytes, _row| bytes.positive? }.max_by(@limit, &:first)
      end
    end
  end
end
