# frozen_string_literal: true

require_relative "heap_graph"

module Memscope
  module Report
    # The growth from an earlier heap graph of a process to a later one: by the paths where memory has accumulated, and
    # by class. The earlier graph lists only the largest rows. Others are assumed to have had the smallest number that
    # it lists, so no growth is overstated.
    class HeapSincePage < HeapPage
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
        rows = grown(@reading.paths, @since.paths, :accumulated_bytes, &:to_s)
        return @page.wrapped("no path where memory has accumulated grew") if rows.empty?

        paths_under("more, by what retains it", rows.map { |bytes, path| [bytes, path] })
      end

      def classes
        rows = grown(of_others(@reading.retained), @since.retained, :retained_bytes, &:name)
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

      # The rows that grew, each with its growth, the largest first.
      def grown(later, earlier, field, &name)
        before = earlier.group_by(&name)
        floor = earlier.map { |row| row.public_send(field).fdiv(number_of(row)).ceil }.min.to_i
        rows = later.uniq(&name).map do |row|
          listed = before.fetch(yield(row), [])
          [row.public_send(field) - listed.sum(&field) - (floor * unlisted(row, listed)), row]
        end
        rows.select { |bytes, _row| bytes.positive? }.max_by(@limit, &:first)
      end

      # The earlier list may have left out some of the objects to which paths are alike.
      def unlisted(row, listed) = [number_of(row) - listed.sum { |one| number_of(one) }, 0].max

      def number_of(row) = row.is_a?(HeapGraph::Path) ? row.count : 1
    end
  end
end
