# frozen_string_literal: true

require_relative "page"

module Memscope
  module Report
    # A diagnosis: the findings, worst first, with their numbers and what helps; then all that was checked.
    class FindingsPage < ReadingPage
      WORDS = { critical: "CRITICAL", warning: "WARNING", info: "info" }.freeze
      MARGIN = " " * 11
      # The ledger's reasons that are printed, if a check could not be made.
      EXPLAINED = %i[extension rss_bytes deep objects].freeze
      private_constant :WORDS, :MARGIN, :EXPLAINED

      private

      def ledger = @reading.evidence.ledger

      def title = @page.title(ledger)

      def sections = [verdict, *@reading.map { |finding| lines(finding) }, checked]

      def reasons = []

      def verdict
        bad, others = @reading.partition(&:unhealthy?)
        return clear if bad.empty?

        counts = bad.group_by(&:severity).map do |severity, found|
          severity == :critical ? "#{found.size} critical" : counted(found.size, "warnings")
        end
        rss = ledger.rss_bytes ? "#{size(ledger.rss_bytes)} resident" : "a process of unknown RSS"
        [@page.wrapped("#{counts.join(' and ')} in #{rss}: #{recoverable(bad, others)}.")]
      end

      # If nothing could be read, the absence of findings is not a verdict.
      def clear
        return [@page.wrapped("No verdict: the RSS of this process is unknown.")] unless ledger.rss_bytes

        [@page.wrapped("Nothing wrong: #{size(ledger.rss_bytes)} resident. The checks are listed below.")]
      end

      def recoverable(bad, others)
        amount = returned(bad)
        return "#{amount} recoverable now" if amount

        amount = returned(others)
        "no remedy while the process runs#{"; #{amount} of other memory recoverable now" if amount}"
      end

      # nil where nothing can be returned.
      def returned(findings)
        least = findings.sum { |finding| finding.recoverable_bytes || 0 }
        most = findings.sum { |finding| finding.recoverable_max_bytes || 0 }
        between(least, most) unless most.zero?
      end

      def lines(finding)
        severity = @page.highlighted(WORDS.fetch(finding.severity).ljust(9), finding.severity)
        ["  #{severity}#{paragraph(finding.title).lstrip}",
         paragraph(finding.explanation), paragraph(returns(finding)), *remedy(finding)].compact
      end

      def paragraph(text) = text && @page.wrapped(text, indent: MARGIN, hanging: 0)

      def returns(finding)
        least = finding.recoverable_bytes
        if least
          likely = " (likely)" if finding.confidence == :likely
          return "Returns #{between(least, finding.recoverable_max_bytes)}#{likely}."
        end
        return unless finding.affected_bytes && finding.unhealthy?

        finding.unrecoverable_reason
      end

      # The remedy is not wrapped: people paste it.
      def remedy(finding)
        return [] unless finding.remedy

        [*finding.remedy.lines(chomp: true).map { |line| "#{MARGIN}> #{line}" }, paragraph(finding.remedy_cost)]
      end

      def checked
        clear, unknown, inapplicable = %i[clear unknown inapplicable].map do |outcome|
          @reading.checked.select { |check| check.outcome == outcome }
        end
        [*listed("checked, nothing significant", clear), *listed("could not be checked", unknown),
         *(explained(@reading.reasons.slice(*EXPLAINED)) if unknown.any?),
         *(not_applied(inapplicable.size) if inapplicable.any?)]
      end

      def not_applied(number) = "  #{counted(number, 'rules')} #{number == 1 ? 'does' : 'do'} not apply to this process"

      def listed(words, checks) = checks.empty? ? [] : [@page.wrapped("#{words}: #{checks.map(&:subject).join(', ')}")]
    end
  end
end
