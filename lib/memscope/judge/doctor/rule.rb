# frozen_string_literal: true

module Memscope
  module Doctor
    MEBIBYTE = Quantity::MEBIBYTE
    # Bytes. Amounts below it are not worth a remedy.
    FLOOR = 16 * MEBIBYTE
    private_constant :MEBIBYTE, :FLOOR

    # One rule: its name, the bytes that it concerns, the thresholds that they must reach, and a block that judges. The
    # problem that it looks for, and the texts of its finding, are in rules.words. An entry that depends on the process
    # is the name of a figure, or a block that runs in Figures.
    #
    # * affected: the bytes that the rule concerns, nil if unknown; absent if it concerns no number of bytes.
    # * inapplicable: why the rule does not apply to this process; nil if it applies.
    # * floor, ratio, of: the bytes must reach both the floor and this share of the figure `of` (by default the RSS):
    #   neither a large share of little memory nor a small share of much memory is worth a remedy.
    #
    # The block takes the bytes, and returns nil if nothing is wrong, or the changes to a certain warning with all
    # parts of the finding as they are in rules.words: `severity` and `confidence`; `evidence`; `title`; `why`, one or
    # several; `returns`, the bytes that the remedy returns, or why nothing in this process returns them; `remedy`, an
    # Array of Finding's remedy, one or several lines, and remedy_cost, or nil if none helps. A text is a String, or a
    # Symbol: its name in rules.words, without that of the rule; `figures` are those that the texts name, besides
    # the methods of Figures.
    #
    # A finding is unhealthy only if it exceeds its thresholds by a tenth, or did so before and still reaches them.
    # Without this margin, a number that hardly moves could change the severity from one diagnosis to the next. The
    # margin applies to the floor, to the ratio, and to whatever the block asks by Figures#reaches?.
    # @api private
    Rule = Struct.new(:id, :subject, :affected, :inapplicable, :floor, :ratio, :of, :block) do
      # @param held [Symbol, nil] the severity of this rule's finding in the last diagnosis
      # @return [Array(Hash, Hash)] the bodies of a Diagnosis::Check and of a Finding; nil for the Finding if there is
      #   none
      def judge(figures, stricter, held = nil)
        unread = figures.ledger.reasons[:extension]
        return [check(:unknown, unread), nil] if unread

        reason = figures.figure(inapplicable)
        return [check(:inapplicable, Rules.text(figures, reason, id)), nil] if reason

        bytes = figures.figure(affected)
        return [check(:unknown, figures.missing), nil] if affected && bytes.nil?

        found = found(figures, bytes) or return [check(:clear), nil]
        [check(:found), body(figures, bytes, **found, severity: settled(found, found(stricter, bytes), held))]
      end

      private

      def check(outcome, reason = nil) = { id: id, subject: subject, outcome: outcome, reason: reason }

      def floors = floor.zero? && ratio.zero? ? {} : { floor_bytes: floor, floor_ratio: ratio, floor_ratio_of: of }

      def found(figures, bytes)
        threshold = [floor, ratio * (figures.figure(of) || 0)].max
        found = figures.figure(block, bytes) if bytes.nil? || figures.reaches?(bytes, threshold)
        found && { severity: :warning, confidence: :certain, evidence: {}, **found }
      end

      # Returns the last diagnosis's severity, but at least the severity with the margin and at most the one without.
      def settled(found, beyond, held)
        severities = [found[:severity], beyond ? beyond[:severity] : :info, held || :info]
        most, least, before = severities.map { |severity| Finding::SEVERITIES.index(severity) }
        Finding::SEVERITIES[before.clamp(*[most, least].sort)]
      end

      def body(source, bytes, severity:, confidence:, evidence:, title: :title, why: :why, returns: :returns,
               remedy: %i[remedy cost], figures: {})
        given = { bytes: bytes, share: (source.of_rss(bytes) if bytes), **figures }
        say = ->(parts, joint = " ") { say(source, given, parts, joint) }
        amount = returns.is_a?(Range)
        { id: id, severity: severity, confidence: confidence, title: say[title], explanation: say[why],
          affected_bytes: bytes, remedy: (say[remedy.first, "\n"] if remedy),
          remedy_cost: (say[remedy.last] if remedy&.last), recoverable_bytes: (returns.begin if amount),
          recoverable_max_bytes: (returns.end if amount), unrecoverable_reason: (say[returns] unless amount),
          evidence: { rss_bytes: source.rss_bytes, **evidence, **floors }.compact }
      end

      def say(source, given, parts, joint)
        [*parts].filter_map { |part| part.is_a?(Symbol) ? Rules.text(source, part, id, given) : part }.join(joint)
      end
    end

    # The files in doctor/rules/ declare the rules.
    # @api private
    module Rules
      WORDS = Words.new(File.join(__dir__, "rules.words"))
      @all = []

      class << self
        attr_reader :all

        # @param rule [Symbol, nil] whose own text of that name comes first
        def text(source, name, rule = nil, given = {})
          own = "#{rule}.#{name}"
          figures = Hash.new { |_none, figure| shown(figure, given.fetch(figure) { source.public_send(figure) }) }
          WORDS.fill(WORDS.key?(own) ? own : name, figures)
        end

        # @return [String] "61 %"
        def percent(share) = format("%.0f %%", 100 * share)

        private

        # A figure for people, by its class and its name.
        def shown(name, value)
          case value
          when Float then percent(value)
          when Integer, nil then name.end_with?("bytes") ? Quantity.size(value) : Quantity.count(value)
          else value.to_s
          end
        end

        def rule(id, affected = nil, inapplicable: nil, floor: 0, ratio: 0.0, of: :rss_bytes, &block)
          @all << Rule.new(id, WORDS["#{id}.subject"], affected, inapplicable, floor, ratio, of, block).freeze
        end
      end
    end
  end
end
