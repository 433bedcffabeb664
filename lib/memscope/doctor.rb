# frozen_string_literal: true

require_relative "diagnosis"
require_relative "doctor/figures"
require_relative "doctor/rules"

module Memscope
  # Judges a process by rules that are data: what Memscope.doctor and `memscope doctor` do.
  #
  # The rules are in doctor/rules/; each says what it looks for, how much of it matters, and what helps.
  module Doctor
    class << self
      # Judges evidence. A pure function: nothing is read.
      #
      # @param evidence [Diagnosis::Evidence]
      # @param since [Diagnosis, Hash, String, nil] an earlier one, or its `to_h` or JSON: with it, growth is judged too
      # @return [Diagnosis]
      # @raise [ArgumentError] when `since` is no diagnosis
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
        when String then Diagnosis.parse(since)
        else
          raise ArgumentError, "Memscope.doctor: since: given #{since.inspect[0, 60]}, allowed: a Memscope::" \
                               "Diagnosis, its to_h or its JSON"
        end
      end

      # The worst first, of these what is about most memory.
      def ordered(findings)
        findings.sort_by.with_index do |finding, index|
          [Finding::SEVERITIES.index(finding[:severity]), -(finding[:affected_bytes] || 0), index]
        end
      end
    end
  end
end
