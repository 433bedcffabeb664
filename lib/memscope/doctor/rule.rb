# frozen_string_literal: true

require_relative "../report/quantity"

module Memscope
  module Doctor
    # One rule, as data. What depends on the process is a lambda of its Figures, or for the first four of these the name
    # of one; the lambda of a text gets what `affected` gave as its second argument.
    #
    # * inapplicable: a String is why the rule cannot apply to this process, nil where it can.
    # * affected: the bytes it is about, nil where that is not known.
    # * present: a further condition, or the only one where it is about no amount.
    # * recoverable: an Integer, a Range, or a String that says why nothing in this process returns it.
    # * id, subject: its name, and what it looks for.
    # * floor, ratio, of: the bytes must reach the floor, and this share of another figure (of the RSS). Both: a large
    #   share of little memory is not worth a remedy, nor is a small share of much.
    # * severity, confidence, title, explanation, evidence, remedy, remedy_cost: those of Finding; a value or a lambda.
    #
    # @api private
    class Rule
      DEFAULTS = { inapplicable: nil, affected: nil, present: true, recoverable: nil, floor: 0, ratio: 0.0,
                   of: :rss_bytes, severity: :warning, confidence: :certain, evidence: {}, remedy: nil,
                   remedy_cost: nil }.freeze
      UNKNOWN = "the figures are missing; the reasons say why"
      private_constant :DEFAULTS, :UNKNOWN

      # @return [Symbol]
      attr_reader :id

      def initialize(id:, subject:, title:, explanation:, **rest)
        unknown = rest.keys - DEFAULTS.keys
        raise ArgumentError, "#{id}: #{unknown.join(', ')}" unless unknown.empty?

        @id = id
        @subject = subject
        @rule = { **DEFAULTS, title: title, explanation: explanation, **rest }.freeze
        freeze
      end

      # @param figures [Figures]
      # @return [Array(Hash, Hash)] the bodies of a Diagnosis::Check and of a Finding, which is nil unless it was found
      def judge(figures)
        reason = figure(:inapplicable, figures)
        return [check(:inapplicable, reason), nil] if reason

        bytes = figure(:affected, figures)
        return [check(:unknown, UNKNOWN), nil] if @rule[:affected] && bytes.nil?
        return [check(:clear), nil] unless enough?(bytes, figures) && figure(:present, figures)

        [check(:found), finding(figures, bytes)]
      end

      private

      def check(outcome, reason = nil) = { id: id, subject: @subject, outcome: outcome, reason: reason }

      def enough?(bytes, figures)
        bytes.nil? || (bytes >= @rule[:floor] && bytes >= @rule[:ratio] * (figures.public_send(@rule[:of]) || 0))
      end

      def finding(figures, bytes)
        texts = %i[title explanation remedy remedy_cost].to_h { |name| [name, value(name, figures, bytes)] }
        { id: id, severity: value(:severity, figures), confidence: value(:confidence, figures), **texts,
          evidence: evidence(figures), affected_bytes: bytes, **recoverable(figure(:recoverable, figures)) }
      end

      def evidence(figures)
        floors = { floor_bytes: @rule[:floor], floor_ratio: @rule[:ratio], floor_ratio_of: @rule[:of] }
        { **value(:evidence, figures).compact, **(@rule[:floor].zero? && @rule[:ratio].zero? ? {} : floors) }
      end

      def recoverable(amount)
        case amount
        when Range then { recoverable_bytes: amount.begin, recoverable_max_bytes: amount.end }
        when Integer then { recoverable_bytes: amount, recoverable_max_bytes: amount }
        else { unrecoverable_reason: amount }
        end
      end

      def figure(name, figures)
        @rule[name].is_a?(Symbol) ? figures.public_send(@rule[name]) : value(name, figures)
      end

      def value(name, *arguments)
        value = @rule[name]
        return value unless value.is_a?(Proc)

        value.call(*arguments.first(value.arity))
      end
    end
  end
end
