# frozen_string_literal: true

require_relative "diagnosis"
require_relative "doctor/figures"
require_relative "doctor/rule"

module Memscope
  # Judges a process by rules that are data, for Memscope.doctor and `memscope doctor`.
  #
  # The rules are in doctor/rules/: what each looks for, above which amount that matters, and what helps.
  module Doctor
    class << self
      # Judges evidence. A pure function: nothing is read.
      #
      # @param evidence [Diagnosis::Evidence]
      # @param since [Diagnosis, Hash, String, nil] an earlier one, or its `to_h` or JSON, to judge growth as well
      # @return [Diagnosis]
      # @raise [ArgumentError] if `since` is anything else
      def diagnose(evidence, since: nil)
        figures = Figures.new(evidence, earlier(since)&.evidence)
        checks, findings = Rules.all.map { |rule| rule.judge(figures) }.transpose
        Diagnosis.capture({ findings: ordered(findings.compact), checked: checks, evidence: evidence,
                            reasons: evidence.ledger.reasons, cost: evidence.cost },
                          evidence.ledger.envelope)
      end

      private

      def earlier(since)
        case since
        when nil, Diagnosis then since
        when Hash then Diagnosis.from_h(since)
        when String then Diagnosis.from_json(since)
        else
          raise ArgumentError, "Memscope.doctor: since: given #{Field.excerpt(since)}, allowed: a Memscope::" \
                               "Diagnosis, its to_h or its JSON"
        end
      end

      # The worst first; of equal severity, the one that affects most memory.
      def ordered(findings)
        findings.sort_by.with_index do |finding, index|
          [Finding::SEVERITIES.index(finding[:severity]), -(finding[:affected_bytes] || 0), index]
        end
      end
    end
  end
end
