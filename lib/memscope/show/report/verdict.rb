# frozen_string_literal: true

require_relative "history"

module Memscope
  module Report
    # A verdict: its sentence, its numbers, the next step; with a history, also its series that changed.
    class VerdictPage < ReadingPage
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

      # The series in bytes that changed.
      def curves
        return unless @history&.started_at

        page = HistoryPage.new(@history, unicode: @page.unicode?, width: @page.width)
        page.table(:bytes, changed: true)
      end

      # Why there is no verdict is part of its sentence.
      def reasons = (super if @reading.known?)

      def remedy = (["  next:", *@reading.remedy.lines(chomp: true).map { |line| "    #{line}" }] if @reading.remedy)
    end
  end
end
