# frozen_string_literal: true

require_relative "../../value/quantity"
require_relative "../../value/loading"

Memscope::Loading.unit :Diagnosis

module Memscope
  module Doctor
    MEBIBYTE = Quantity::MEBIBYTE
    # Bytes. Amounts below it are not worth a remedy.
    FLOOR = 16 * MEBIBYTE
    private_constant :MEBIBYTE, :FLOOR

    # One rule: its name and what it looks for, the bytes that it concerns, the thresholds that they must reach, and a
    # block that judges. An entry that depends on the process is the name of a figure, or a block that runs in Figures.
    #
    # * affected: the bytes that the rule concerns, nil if unknown; absent if it concerns no number of bytes.
    # * inapplicable: why the rule does not apply to this process, a String; nil if it applies.
    # * floor, ratio, of: the bytes must reach both the floor and this share of the figure `of` (by default the RSS):
    #   neither a large share of little memory nor a small share of much memory is worth a remedy.
    #
    # The block takes the bytes, and returns nil if nothing is wrong, or the finding: `title`; `why`, sentences that
    # explain it; `severity` and `confidence`, by default a certain warning; `returns`, the bytes that the remedy
    # returns, or why nothing in this process returns them; `remedy`, an Array of Finding's remedy and remedy_cost;
    # `evidence`.
    #
    # A finding is unhealthy only if it exceeds its thresholds by a tenth, or did so before and still reaches them.
    # Without this margin, a number that hardly moves could change the severity from one diagnosis to the next. The
    # margin applies to the floor, to the ratio, and to whatever the block asks by Figures#reaches?.
    #
    # @api private
    Rule = Struct.new(:id, :subject, :affected, :inapplicable, :floor, :ratio, :of, :block) do
      # @param figures [Figures]
      # @param stricter [Figures] with a margin
      # @param held [Symbol, nil] the severity of this rule's finding in the last diagnosis
      # @return [Array(Hash, Hash)] the bodies of a Diagnosis::Check and of a Finding; nil for the Finding if there is
      #   none
      def judge(figures, stricter, held = nil)
        unread = figures.ledger.reasons[:extension]
        return [check(:unknown, unread), nil] if unread

        reason = figures.figure(inapplicable)
        return [check(:inapplicable, reason), nil] if reason

        bytes = figures.figure(affected)
        return [check(:unknown, figures.missing), nil] if affected && bytes.nil?

        found = found(figures, bytes) or return [check(:clear), nil]
        [check(:found), body(figures, bytes, **found, severity: settled(found, found(stricter, bytes), held))]
      end

      private

      def check(outcome, reason = nil) = { id: id, subject: subject, outcome: outcome, reason: reason }

      def found(figures, bytes)
        threshold = [floor, ratio * (figures.figure(of) || 0)].max
        found = figures.figure(block, bytes) if bytes.nil? || figures.reaches?(bytes, threshold)
        found && { severity: :warning, confidence: :certain, evidence: {}, **found }
      end

      def floors
        return {} if floor.zero? && ratio.zero?

        { floor_bytes: floor, floor_ratio: ratio, floor_ratio_of: of }
      end

      # Returns the last diagnosis's severity, but at least the severity with the margin and at most the one without.
      def settled(found, beyond, held)
        severities = [found[:severity], beyond ? beyond[:severity] : :info, held || :info]
        most, least, before = severities.map { |severity| Finding::SEVERITIES.index(severity) }
        Finding::SEVERITIES[before.clamp(*[most, least].sort)]
      end

      def body(figures, bytes, title:, why:, severity:, confidence:, evidence:, returns:, remedy: nil)
        amount = returns.is_a?(Range)
        { id: id, severity: severity, confidence: confidence, title: title,
          explanation: [*why].compact.join(" "), affected_bytes: bytes, remedy: remedy&.first,
          remedy_cost: remedy&.last, recoverable_bytes: (returns.begin if amount),
          recoverable_max_bytes: (returns.end if amount), unrecoverable_reason: (returns unless amount),
          evidence: { rss_bytes: figures.rss_bytes, **evidence, **floors }.compact }
      end
    end

    # The files in doctor/rules/ declare the rules.
    #
    # @api private
    module Rules
      @all = []

      class << self
        # @return [Array<Rule>]
        attr_reader :all

        private

        def rule(id, subject, affected = nil, inapplicable: nil, floor: 0, ratio: 0.0, of: :rss_bytes, &block)
          @all << Rule.new(id, subject, affected, inapplicable, floor, ratio, of, block).freeze
        end
      end
    end
  end
end
