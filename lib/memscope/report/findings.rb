# frozen_string_literal: true

module Memscope
  class Report
    # A diagnosis for people: what was found, the worst first, with the numbers and what helps; and what was looked for.
    class Findings
      include Quantity

      WORDS = { critical: "CRITICAL", warning: "WARNING", info: "info" }.freeze
      MARGIN = " " * 11
      # Of the ledger's reasons.
      EXPLAINED = %i[extension rss_bytes deep objects].freeze
      private_constant :WORDS, :MARGIN, :EXPLAINED

      # @param diagnosis [Diagnosis]
      # @param unicode [Boolean] false: plain ASCII
      def initialize(diagnosis, unicode: true)
        @diagnosis = diagnosis
        @ledger = diagnosis.evidence.ledger
        @page = Page.new(unicode: unicode)
      end

      # @return [String]
      def to_s
        sections = [[@page.title(@ledger)], verdict, *@diagnosis.map { |finding| lines(finding) }, checked, footer]
        @page.encoded(sections.reject(&:empty?).map { |lines| "#{lines.join("\n")}\n" }.join("\n"))
      end

      private

      def verdict
        bad = @diagnosis.select(&:unhealthy?)
        return clear if bad.empty?

        counts = bad.group_by(&:severity).map { |severity, found| count_of(severity, found.size) }
        [@page.wrapped("#{counts.join(' and ')} in #{rss}. #{recoverable(bad, @diagnosis.to_a - bad)}")]
      end

      # That nothing was found says nothing where nothing could be read.
      def clear
        return [@page.wrapped("Could not be judged: #{rss}.")] unless @ledger.rss_bytes

        [@page.wrapped("Nothing wrong: #{rss}. What was looked for is below.")]
      end

      def count_of(severity, number)
        severity == :critical ? "#{number} critical" : counted(number, "warnings")
      end

      def rss = @ledger.rss_bytes ? "#{size(@ledger.rss_bytes)} resident" : "a process whose RSS is not known"

      def recoverable(bad, others)
        amount = returned(bad)
        return "#{amount.sub(/\A./, &:upcase)} can go back now." if amount

        amount = returned(others)
        "What is wrong stays while the process runs#{"; #{amount} of other memory can go back now" if amount}."
      end

      # As a text; nil for nothing.
      def returned(findings)
        least = findings.sum { |finding| finding.recoverable_bytes || 0 }
        most = findings.sum { |finding| finding.recoverable_max_bytes || 0 }
        between(least, most) unless most.zero?
      end

      def lines(finding)
        [heading(finding), paragraph(finding.explanation), paragraph(returns(finding)), *remedy(finding)].compact
      end

      def heading(finding)
        word = WORDS.fetch(finding.severity)
        "  #{word.ljust(9)}#{paragraph(finding.title).lstrip}"
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

      # To be pasted: not wrapped.
      def remedy(finding)
        return [] unless finding.remedy

        [*finding.remedy.lines(chomp: true).map { |line| "#{MARGIN}> #{line}" },
         paragraph("costs #{finding.remedy_cost}")]
      end

      def checked
        clear, unknown, inapplicable = %i[clear unknown inapplicable].map do |outcome|
          @diagnosis.checked.select { |check| check.outcome == outcome }
        end
        [listed("looked for, and not there or too little to matter", clear), listed("could not be told", unknown),
         *missing(unknown),
         ("  #{counted(inapplicable.size, 'rules')} for what cannot be in this process" unless inapplicable.empty?)]
          .compact
      end

      # Why, as far as the ledger says it.
      def missing(unknown)
        return [] if unknown.empty?

        @diagnosis.reasons.slice(*EXPLAINED).map { |id, why| @page.wrapped("#{id}: #{why}") }
      end

      def listed(words, checks)
        @page.wrapped("#{words}: #{checks.map(&:subject).join(', ')}") unless checks.empty?
      end

      def footer
        cost = @diagnosis.cost
        ["  read in #{milliseconds(cost.wall_us)} (#{milliseconds(cost.gvl_us)} under the GVL)"]
      end
    end
  end
end
