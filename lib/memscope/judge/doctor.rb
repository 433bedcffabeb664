# frozen_string_literal: true

require_relative "doctor/figures"
require_relative "doctor/rule"
require_relative "../value/loading"
Memscope::Loading.unit :Diagnosis

module Memscope
  # Judges a process by rules that are data, for Memscope.doctor and `memscope doctor`.
  #
  # The rules are in doctor/rules/: each states what it looks for, the least amount that matters, and what helps.
  module Doctor
    %w[ruby growth rows settings glibc jemalloc kernel].each { |file| require_relative "doctor/rules/#{file}" }
    Rules.all.freeze

    class << self
      # Implements Memscope.doctor.
      #
      # @api private
      def read(since: nil, gc: false) = diagnose(Diagnosis::Evidence.read(gc: gc), since: since)

      # Judges evidence. A pure function: nothing is read.
      #
      # @param evidence [Diagnosis::Evidence]
      # @param since [Diagnosis, nil] an earlier diagnosis, to judge growth as well
      # @return [Diagnosis]
      # @raise [ArgumentError] if `since` is anything else, or is of another process
      def diagnose(evidence, since: nil)
        check_since(since, evidence) if since
        figures = Figures.new(evidence, since&.evidence)
        checks, findings = Rules.all.map { |rule| rule.judge(figures) }.transpose
        changes = figures.changes if since
        Diagnosis.capture({ findings: ordered(findings.compact), checked: checks, evidence: evidence, changes: changes,
                            changed_since: changes && (since.at.to_r * 1000).round, cost: evidence.total_cost,
                            reasons: evidence.ledger.reasons }, evidence.ledger.envelope)
      end

      private

      def check_since(earlier, evidence)
        earlier.is_a?(Diagnosis) or Field.refuse(:since, earlier, "a Memscope::Diagnosis", call: "Memscope.doctor")
        before, now = [earlier.evidence, evidence].map(&:ledger)
        started = [earlier.evidence, evidence].map { |one| one.lint.environment.started }
        return if Diff.same_process?(before, now) && started.uniq.one?

        given = "a diagnosis of another process (pid #{before.pid}, read at #{before.at})"
        raise Invalid.new(:since, given, "one of this process (pid #{now.pid})", call: "Memscope.doctor")
      end

      # The worst first; of equal severity, what has grown, then the one that affects most memory.
      def ordered(findings)
        findings.sort_by.with_index do |finding, index|
          [Finding::SEVERITIES.index(finding[:severity]), finding[:id].end_with?("_growth") ? 0 : 1,
           -(finding[:affected_bytes] || 0), index]
        end
      end
    end
  end
end
