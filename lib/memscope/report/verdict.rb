# frozen_string_literal: true

require_relative "history"

module Memscope
  module Report
    # A verdict: its sentence, its numbers, what to do next; with a history, also its series that changed.
    class VerdictPage < ReadingPage
      # Numbers of the evidence, and what they are called.
      SIZES = { noise_bytes: "noise of a value", step_bytes: "largest step", ends_near_bytes: "will end near",
                working_set_bytes: "working set of the cgroup", limit_bytes: "its limit" }.freeze
      # Points of a sparkline.
      SPAN = 24
      private_constant :SIZES, :SPAN

      # @param history [History, nil]
      def initialize(reading, history: nil, unicode: true, **display)
        super(reading, unicode: unicode, **display)
        @history = history
        @unicode = unicode
      end

      private

      def sections = [@page.wrapped(@reading.sentence), evidence, curves, remedy]

      def evidence
        evidence = @reading.evidence
        return if @reading.kind == :insufficient

        evidence = evidence.except(:working_set_bytes) unless evidence[:limit_bytes]
        sizes = SIZES.filter_map { |name, what| "#{what} #{size(evidence[name])}" if evidence[name] }
        @page.wrapped("#{counted(evidence[:points], 'values')}, one per #{evidence[:epoch_seconds] / 60} min, " \
                      "#{[*sizes, format('p-value %.2g', evidence[:p_value])].join(', ')}, " \
                      "#{format('confidence %.0f %%', 100 * @reading.confidence)}.")
      end

      # Series in bytes that changed. Each scale goes from the least value to the greatest, but over at least 1 MiB.
      def curves
        return unless @history&.started_at

        ids = @history.curves.select { |curve| curve.unit == :bytes }.map(&:id)
        rows = ids.map { |id| row(HistoryPage.label(id), @history.points(id).filter_map(&:min)) }
        rows = rows.reject { |row| row[1] == "0.0" }
        heading = ["MiB", "change", "since #{@history.started_at.strftime('%F %H:%M')} UTC"]
        @page.listing(heading, rows) if rows.any?
      end

      def row(name, values)
        shown = Sparkline.parts(values, SPAN)
        spark = Sparkline.of(shown, scale: [shown.max - shown.min, MEBIBYTE].max, unicode: @unicode)
        [mebibytes(values.last), signed_mebibytes(values.last - values.first), "#{spark.ljust(SPAN)}  #{name}"]
      end

      # Why there is no verdict is part of its sentence.
      def reasons = (super if @reading.known?)

      def remedy = (["  next:", *@reading.remedy.lines(chomp: true).map { |line| "    #{line}" }] if @reading.remedy)
    end
  end
end
