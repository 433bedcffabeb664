# frozen_string_literal: true

require_relative "history"

module Memscope
  module Report
    # A verdict: its sentence, its numbers, what to do next; with a history, also its series that changed.
    class VerdictPage < ReadingPage
      # Points of a sparkline.
      SPAN = 24
      private_constant :SPAN

      # @param history [History, nil]
      def initialize(reading, history: nil, **display)
        super(reading, **display)
        @history = history
      end

      private

      def sections = [@page.wrapped(@reading.sentence), evidence, curves, remedy]

      def evidence
        return if @reading.kind == :too_early

        evidence = @reading.evidence
        used, limit = evidence.values_at(:working_set_bytes, :limit_bytes)
        full = "; #{size(used)} of the container's #{size(limit)} is in use" if used && limit
        @page.wrapped("#{counted(evidence[:points], 'values')}, one per " \
                      "#{evidence[:epoch_seconds] / 60} min, " \
                      "#{format('confidence %.0f %%', 100 * @reading.confidence)}#{full}.")
      end

      # Series in bytes that changed. Each scale goes from the least value to the greatest, but over at least 1 MiB.
      def curves
        return unless @history&.started_at

        ids = @history.curves.select { |curve| curve.unit == :bytes }.map(&:id)
        since = begun(ids & History::ROWS)
        rows = ids.filter_map { |id| row(id, since) }.reject { |row| row[1] == "0.0" }
        @page.listing(["MiB", "change", "since #{since.strftime('%F %H:%M')} UTC"], rows) if rows.any?
      end

      # When all rows had been sampled: a change of RSS must not have begun before those of the rows, its parts.
      def begun(rows) = rows.filter_map { |id| @history.points(id).find(&:min)&.at }.max || @history.started_at

      def row(id, since)
        values = @history.points(id, since: since).filter_map(&:min)
        return if values.empty?

        shown = Sparkline.parts(values, SPAN)
        spark = Sparkline.of(shown, scale: [shown.max - shown.min, MEBIBYTE].max, unicode: @page.unicode?).ljust(SPAN)
        [mebibytes(values.last), signed_mebibytes(values.last - values.first), "#{spark}  #{History.label(id)}"]
      end

      # Why there is no verdict is part of its sentence.
      def reasons = (super if @reading.known?)

      def remedy = (["  next:", *@reading.remedy.lines(chomp: true).map { |line| "    #{line}" }] if @reading.remedy)
    end
  end
end
