# frozen_string_literal: true

require_relative "doctor/figures"
require_relative "doctor/rule"
require_relative "../value/loading"
require_relative "../value/runtime"
Memscope::Loading.unit :Diagnosis

module Memscope
  # Judges a process by rules that are data, for Memscope.doctor and `memscope doctor`.
  #
  # The rules are in doctor/rules/: each states what it looks for, the least amount that matters, and what helps.
  module Doctor
    CALL = "Memscope.doctor"
    private_constant :CALL
    %w[growth rows settings glibc jemalloc ruby kernel].each { |file| require_relative "doctor/rules/#{file}" }

    module Rules
      # @return [Array<Rule>]
      def self.all = [*RUBY, *GROWTH, *ROW_GROWTH, *SETTINGS, *GLIBC, *JEMALLOC, *KERNEL]
    end

    class << self
      # Implements Memscope.doctor.
      #
      # @api private
      def read(since: nil, gc: false)
        runtime = Runtime.current
        diagnose(Diagnosis::Evidence.read(gc: gc), since: since, previous_severities: runtime.severities)
          .tap { |diagnosis| runtime.severities = diagnosis.severities }
      end

      # Judges evidence. A pure function: nothing is read.
      #
      # @param evidence [Diagnosis::Evidence]
      # @param since [Diagnosis, nil] an earlier diagnosis, to judge growth as well
      # @param previous_severities [Hash{Symbol => Symbol}, nil] severities of the last diagnosis by the ids of its
      #   findings. A finding near its threshold keeps its severity, so that an idle process gets one answer
      # @return [Diagnosis]
      # @raise [ArgumentError] if `since` is anything else, or is of another process
      def diagnose(evidence, since: nil, previous_severities: nil)
        check_since(since, evidence) if since
        figures = Figures.new(evidence, since&.evidence)
        held = previous_severities.to_h
        checks, findings = Rules.all.map { |rule| rule.judge(figures, held[rule.id]) }.transpose
        Diagnosis.capture({ findings: ordered(findings.compact), checked: checks, evidence: evidence,
                            **changes(figures, since), reasons: evidence.ledger.reasons,
                            cost: evidence.total_cost }, evidence.ledger.envelope)
      end

      private

      def changes(figures, earlier)
        changes = (figures.changes if earlier) or return {}
        { changes: changes, changed_since: (earlier.at.to_r * 1000).round }
      end

      def check_since(earlier, evidence)
        diagnosis = earlier.is_a?(Diagnosis)
        Field.refuse(:since, earlier, "a Memscope::Diagnosis", call: CALL) unless diagnosis
        before, now = [earlier.evidence, evidence].map(&:ledger)
        started = [earlier.evidence, evidence].map { |one| one.lint.environment.started }
        return if Diff.same_process?(before, now) && started.uniq.one?

        given = "a diagnosis of another process (pid #{before.pid}, read at #{before.at})"
        raise Invalid.new(:since, given, "one of this process (pid #{now.pid})", call: CALL)
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
