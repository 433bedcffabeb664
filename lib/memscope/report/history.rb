# frozen_string_literal: true

require_relative "sparkline"

module Memscope
  module Report
    # A History: a line for each series, with its first and its last sample, the change, and a sparkline.
    #
    # Each sparkline has its own scale, from the least value of its series. A full bar stands for a MiB at least, or for
    # a hundredth of the largest count: smaller changes look flat.
    class HistoryPage < ReadingPage
      NAMES = 20
      NUMBERS = 11
      # The fewest columns of a sparkline beside numbers.
      SPAN = 8
      private_constant :NAMES, :NUMBERS, :SPAN

      # @param series [Symbol]
      # @return [String] "Ruby heap", "RSS", "minor GCs"
      def self.label(series)
        { ruby_internal: "Ruby internals", jit: "JIT code" }.fetch(series) do
          series.name.tr("_", " ").sub(/\A[rpu]ss\z/, &:upcase).sub("ruby", "Ruby").sub("gcs", "GCs")
        end
      end

      # @return [Array<String>] the RSS as two lines; none if it has fewer than two samples
      def curve
        points = @reading.series.include?(:rss) ? @reading.points(:rss).select(&:last) : []
        return [] if points.size < 2

        values = Sparkline.parts(@reading.points(:rss).map(&:last), @page.width - 40)
        least, most = points.min_by(&:min), points.max_by(&:last)
        ["  RSS  #{sparkline(values, :bytes)}  #{times(points)}",
         @page.joined(["least #{size(least.min)} at #{time(least)}", "most #{size(most.last)} at #{time(most)}",
                       "last #{size(points.last.last)}"], indent: "       ")]
      end

      private

      def sections = [curve, *%i[bytes count].map { |unit| table(unit) }]

      def footer = (super if @reading.known?)

      def table(unit)
        rows = @reading.curves.select { |curve| curve.unit == unit }.filter_map { |curve| row(curve) }
        heading = ["first", "last", "change"].map { |word| word.rjust(NUMBERS) }.join
        [@page.highlighted("  #{(unit == :bytes ? 'MiB' : '').ljust(NAMES)}#{heading}"), *rows] if rows.any?
      end

      def row(curve)
        values = @reading.points(curve.id).map(&:last)
        known = values.compact
        return if known.none?(&:positive?)

        numbers = cells(*known.values_at(0, -1), curve.unit).map { |text| text.rjust(NUMBERS) }.join
        span = @page.width - NAMES - (3 * NUMBERS) - 4
        spark = sparkline(Sparkline.parts(values, span), curve.unit) if span >= SPAN
        "  #{self.class.label(curve.id).ljust(NAMES)}#{numbers}  #{spark}".rstrip
      end

      def cells(first, last, unit)
        return [mebibytes(first), mebibytes(last), signed_mebibytes(last - first)] if unit == :bytes

        [count(first), count(last), last == first ? "0" : signed(last - first)]
      end

      def sparkline(values, unit)
        least, most = values.compact.minmax
        scale = [most - least, unit == :bytes ? MEBIBYTE : [most / 100, 1].max].max
        Sparkline.of(values, scale: scale, unicode: @page.unicode?)
      end

      def times(points) = "#{time(points.first)} to #{time(points.last)} UTC"

      # The day only if the history is longer than one.
      def time(point) = point.at.strftime(@reading.at - @reading.started_at < 86_400 ? "%H:%M:%S" : "%-d %b %H:%M")
    end
  end
end
