# frozen_string_literal: true

require_relative "sparkline"

module Memscope
  module Report
    # A History: a line for each series, with its first and its last sample, the change, and a sparkline.
    #
    # Each sparkline has its own scale, from the least value of its series. A full bar stands for at least a MiB, or for
    # a hundredth of the largest count: smaller changes look flat.
    class HistoryPage < ReadingPage
      NAMES = 17
      NUMBERS = 11
      # The fewest columns of a sparkline that is shown.
      SPAN = 8
      private_constant :NAMES, :NUMBERS, :SPAN

      # @return [Array<String>] the RSS as two lines; none if it has fewer than two samples
      def curve
        points = @reading.series.include?(:rss) ? @reading.points(:rss) : []
        known = points.select(&:last)
        return [] if known.size < 2

        spark = sparkline(points.map(&:last), @page.width - 42, :bytes)
        [["  RSS", spark, "#{time(known.first)} to #{time(known.last)} UTC"].compact.join("  "), extremes(known)]
      end

      private

      def sections = [curve, *%i[bytes count].map { |unit| table(unit) }]

      def footer = (super if @reading.known?)

      def extremes(points)
        least = points.min_by(&:min)
        most = points.max_by(&:last)
        @page.joined(["least #{size(least.min)} at #{time(least)}", "most #{size(most.last)} at #{time(most)}"],
                     indent: "       ")
      end

      def table(unit)
        rows = @reading.curves.select { |curve| curve.unit == unit }.filter_map { |curve| row(curve) }
        heading = %w[first last change].map { |word| word.rjust(NUMBERS) }.join
        title = "  #{(unit == :bytes ? 'MiB' : '').ljust(NAMES)}#{heading}"
        [@page.highlighted(title[0, @page.width]), *rows] if rows.any?
      end

      def row(curve)
        values = @reading.points(curve.id).map(&:last)
        known = values.compact
        return unless known.any?(&:positive?)

        name = History.label(curve.id).ljust(NAMES)
        spark = sparkline(values, @page.width - NAMES - (3 * NUMBERS) - 4, curve.unit)
        "  #{name}#{cells(known.first, known.last, curve.unit)}  #{spark}"[0, @page.width].rstrip
      end

      def cells(first, last, unit)
        texts = if unit == :bytes
                  [mebibytes(first), mebibytes(last), signed_mebibytes(last - first)]
                else
                  [count(first), count(last), signed(last - first)]
                end
        texts.map { |text| text.rjust(NUMBERS) }.join
      end

      def sparkline(values, columns, unit)
        return if columns < SPAN

        least, most = values.compact.minmax
        scale = [most - least, unit == :bytes ? MEBIBYTE : [most / 100, 1].max].max
        Sparkline.of(Sparkline.parts(values, columns), scale: scale, unicode: @page.unicode?)
      end

      # With the date only if the history spans a day or more.
      def time(point) = point.at.strftime(@reading.at - @reading.started_at < 86_400 ? "%H:%M:%S" : "%-d %b %H:%M")
    end
  end
end
