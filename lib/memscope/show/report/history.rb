# frozen_string_literal: true

require_relative "sparkline"

module Memscope
  module Report
    # A History: for each series its last sample, the change, the largest sample, and a sparkline.
    #
    # Each sparkline has its own scale, from the smallest value of its series. A full bar stands for at least a MiB, or
    # for a hundredth of the largest count: smaller changes look flat.
    class HistoryPage < ReadingPage
      NAMES = 17
      # Points of a sparkline.
      SPAN = 24

      # nil if no series has this unit. With `changed`, series that have not changed are left out.
      def table(unit, changed: false)
        rows = @reading.curves.filter_map { |curve| row(curve.id, unit) if curve.unit == unit }
        rows.reject! { |_last, change,| ["0", "0.0"].include?(change) } if changed
        return if rows.empty?

        since = "since #{begun.strftime('%F %H:%M')} UTC"
        @page.listing([unit == :bytes ? "MiB" : "", "change", "most", since], rows)
      end

      private

      def sections = %i[bytes count].map { |unit| table(unit) }

      def footer = (super if @reading.known?)

      def begun = @begun ||= @reading.rows_since || @reading.started_at

      def row(id, unit)
        points = @reading.points(id, since: begun).select(&:min)
        return if points.none? { |point| point.last.positive? }

        values = points.map(&:min)
        [*cells(values.last, values.last - values.first, points.map(&:last).max, unit),
         "#{Terms.series(id).ljust(NAMES)}  #{sparkline(values, unit)}"]
      end

      def cells(last, change, most, unit)
        return [count(last), signed(change), count(most)] if unit == :count

        [mebibytes(last), signed_mebibytes(change), mebibytes(most)]
      end

      def sparkline(values, unit)
        least, most = values.minmax
        scale = [most - least, unit == :bytes ? MEBIBYTE : [most / 100, 1].max].max
        parts = values.each_slice(values.size.fdiv(SPAN).ceil).map(&:last)
        Sparkline.of(parts, scale: scale, unicode: @page.unicode?)
      end
    end

    # A verdict: its sentence, its numbers, the next step. With a history, also its series that changed.
    class VerdictPage < ReadingPage
      VIEW = { history: nil }.freeze

      private

      def sections = [@page.wrapped(@reading.sentence), evidence, curves, next_step(@reading.remedy)]

      def evidence
        return if @reading.kind == :too_early

        evidence = @reading.evidence
        used, limit = evidence.values_at(:working_set_bytes, :limit_bytes)
        full = text(:container_full, used: size(used), limit: size(limit)) if used && limit
        say(:judged, values: counted(evidence[:points], "values"), minutes: evidence[:epoch_seconds] / 60,
                     confidence: format("%.0f", 100 * @reading.confidence), full: full)
      end

      # The series in bytes that changed.
      def curves
        page = HistoryPage.new(@history, unicode: @page.unicode?, width: @page.width) if @history&.started_at
        page&.table(:bytes, changed: true)
      end

      # Why there is no verdict is part of its sentence.
      def reasons = (super if @reading.known?)

      def remedy = (["  next:", *@reading.remedy.lines(chomp: true).map { |line| "    #{line}" }] if @reading.remedy)
    end
  end
end
