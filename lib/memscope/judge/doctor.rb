# frozen_string_literal: true

require_relative "doctor/figures"
require_relative "doctor/rule"
Memscope::Loading.unit :Diagnosis

module Memscope
  # Judges a process by rules that are data, for Memscope.doctor and `memscope doctor`.
  #
  # The rules are in doctor/rules/. Each states its condition, the minimum amount that matters, and the remedy.
  module Doctor
    # By how much numbers must exceed their thresholds to make a finding unhealthy, unless it was unhealthy in the last
    # diagnosis.
    MARGIN = 1.1
    private_constant :MARGIN
    %w[ruby growth settings glibc jemalloc kernel].each { |file| require_relative "doctor/rules/#{file}" }
    Rules.all.freeze

    class << self
      # Implements Memscope.doctor.
      # @api private
      def read(since: nil, gc: false)
        runtime = Runtime.current
        earlier = runtime.severities
        diagnosis = diagnose(Diagnosis::Evidence.read(gc: gc), since: since, previous_severities: earlier)
        runtime.severities = diagnosis.severities
        diagnosis.worse_than(earlier.to_h).each { |finding| Notifications.tell(:finding) { finding.to_h } }
        diagnosis
      end

      # Judges evidence. A pure function: nothing is read.
      #
      # @param since [Diagnosis, nil] an earlier diagnosis, to judge growth as well
      # @param previous_severities [Hash{Symbol => Symbol}, nil] severities of the last diagnosis by the ids of its
      #   findings. A finding near its threshold keeps its severity, so that an idle process gets one answer
      # @return [Diagnosis]
      # @raise [ArgumentError] if `since` is anything else, or is of another process
      def diagnose(evidence, since: nil, previous_severities: nil)
        check_since(since, evidence) if since
        earlier = since && Figures.new(since.evidence)
        figures, stricter = [1.0, MARGIN].map { |margin| Figures.new(evidence, earlier, margin: margin) }
        held = previous_severities.to_h
        checks, findings = Rules.all.map { |rule| rule.judge(figures, stricter, held[rule.id]) }.transpose
        Diagnosis.capture({ findings: ordered(findings.compact), checked: checks, evidence: evidence, **figures.changes,
                            reasons: evidence.ledger.reasons, cost: evidence.total_cost }, evidence.ledger.envelope)
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

      # The worst first. Of equal severity, growth comes first, then the finding that affects most memory.
      def ordered(findings)
        findings.sort_by.with_index do |finding, index|
          [Finding::SEVERITIES.index(finding[:severity]), finding[:id].end_with?("_growth") ? 0 : 1,
           -(finding[:affected_bytes] || 0), index]
        end
      end
    end
  end
end
