# frozen_string_literal: true

module Memscope
  module Report
    # A diagnosis: the findings, worst first, with their numbers and remedies. Then all checks.
    class FindingsPage < ReadingPage
      WORDS = { critical: "CRITICAL", warning: "WARNING", info: "info" }.freeze
      MARGIN = " " * 11
      # Findings on free memory, which the recoverable amount of :possible_garbage includes (Diagnosis::Garbage).
      FREE = %i[trimmable dirty_pages muzzy_pages empty_heap_pages].freeze

      # The first sentence if there are no problems. If something is unknown, the absence of problems is not a verdict.
      def without_problems
        verdict = case @reading.verdict
                  when :unknown then return text(:no_rss)
                  when :garbage then text(:maybe_garbage, bytes: size(garbage.affected_bytes))
                  when :grown then grown
                  when :too_early then text(:too_early)
                  when :incomplete
                    unknown, made = @reading.checked.partition { |check| check.outcome == :unknown }
                    text(:no_problems_but, checks: counted(made.size, "checks"), unknown: count(unknown.size))
                  else text(:no_problems)
                  end
        "#{verdict}. #{rss}."
      end

      # How much the findings' remedies return together; nil if nothing can be returned.
      def returned(findings = @reading)
        garbage, others = findings.partition { |finding| finding.id == :possible_garbage }
        free, rest = others.partition { |finding| FREE.include?(finding.id) }
        least = [garbage, others].map { |some| sum(some, :recoverable_bytes) }.max
        most = [garbage, free].map { |some| sum(some, :recoverable_max_bytes) }.max
        most += sum(rest, :recoverable_max_bytes)
        between(least, most) unless most.zero?
      end

      private

      def ledger = @reading.evidence.ledger

      def title = @page.title(ledger)

      def sections
        collected = @page.wrapped(LedgerPage.of_collection(ledger.collected)) if ledger.collected
        first = [@page.wrapped(verdict), *collected, *changes]
        [first, growth, *@reading.map { |finding| lines(finding) }, next_step(@reading.next_command), checked]
      end

      def reasons = nil

      def verdict
        bad = @reading.select(&:unhealthy?)
        return without_problems if bad.empty?

        counts = bad.map(&:severity).tally.map do |severity, number|
          severity == :critical ? "#{number} critical" : counted(number, "warnings")
        end
        now = returned&.then { |bytes| "; #{bytes} can be released now" }
        "#{counts.join(' and ')}. #{rss}#{now}.#{only_later(bad)}"
      end

      def garbage = @reading.find { |finding| finding.id == :possible_garbage }

      def sum(findings, amount) = findings.sum { |finding| finding.public_send(amount) || 0 }

      def rss = ledger.rss_bytes ? "RSS #{size(ledger.rss_bytes)}" : "RSS unknown"

      # By how much RSS has grown, and the rows that changed most.
      def grown
        changes = @reading.changes
        rows = changes.except(:rss, :uss).select { |_row, bytes| bytes.abs >= MEBIBYTE }.first(3)
        parts = rows.map { |row, bytes| "#{row.name.tr('_', ' ')} #{signed_mebibytes(bytes)}" }
        parts << "private #{signed_mebibytes(changes[:uss])}" if changes[:uss]
        text(:changed, seconds: count((@reading.at - @reading.changed_since).round),
                       rss: signed_mebibytes(changes[:rss]), parts: parts.join(", "))
      end

      # A leak is a finding.
      def growth
        verdict = @reading.evidence.verdict
        say(:by_history, verdict: verdict.sentence) if verdict && !verdict.leak?
      end

      # Unless the first line has them.
      def changes = (@page.wrapped("#{grown}.") if @reading.grown? && @reading.verdict != :grown)

      def only_later(bad)
        later = bad.select { |finding| finding.remedy_cost&.start_with?("requires a restart") }
        return if later.empty? || returned(later)

        " #{text(later.size < bad.size ? :restart_for_some : :restart_for_all)}"
      end

      def lines(finding)
        severity = @page.highlighted(WORDS.fetch(finding.severity).ljust(9), finding.severity)
        ["  #{severity}#{paragraph(finding.title).lstrip}",
         paragraph(finding.explanation), paragraph(returns(finding)), *remedy(finding)].compact
      end

      def paragraph(text) = text && @page.wrapped(text, indent: MARGIN, hanging: 0)

      def returns(finding)
        least = finding.recoverable_bytes
        return (finding.unrecoverable_reason if finding.affected_bytes && finding.unhealthy?) unless least

        "Returns #{between(least, finding.recoverable_max_bytes)}#{' (likely)' if finding.confidence == :likely}."
      end

      # The remedy is not wrapped: people paste it.
      def remedy(finding)
        return [] unless finding.remedy

        [*finding.remedy.lines(chomp: true).map { |line| "#{MARGIN}> #{line}" }, paragraph(finding.remedy_cost)]
      end

      def checked
        clear, unknown, inapplicable =
          @reading.checked.group_by(&:outcome).values_at(:clear, :unknown, :inapplicable).map(&:to_a)
        [listed(:clear, clear), listed(:unchecked, unknown),
         *unknown.map(&:reason).uniq.map { |why| @page.wrapped(why, indent: "    ") },
         (not_applied(inapplicable) if inapplicable.any?)].compact
      end

      def not_applied(checks)
        why = checks.map(&:reason).tally.sort_by { |_reason, number| -number }.map(&:first)
        say(checks.one? ? :not_applied : :none_applied, number: counted(checks.size, "checks"), why: why.join("; "))
      end

      def listed(name, checks) = (say(name, subjects: checks.map(&:subject).join(", ")) if checks.any?)
    end
  end
end
