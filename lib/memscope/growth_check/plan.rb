# frozen_string_literal: true

module Memscope
  class GrowthCheck < Reading
    # The options of an exercise: a number of rounds, none of which is a warm-up: the first count precedes the first
    # round.
    #
    # @api private
    class Plan < Options
      # @return [Integer]
      attr_reader :rounds
      # @return [Numeric, nil]
      attr_reader :pause

      # @param rounds [Integer]
      # @param pause [Numeric, nil] seconds
      # @param options [Hash{Symbol => Object}] those of Options
      def initialize(rounds:, pause:, **options)
        super(in: :process, **options)
        @rounds = rounds
        @pause = pause
      end

      # @return [Integer] iterations before the first count
      def unjudged = 0

      # @return [Boolean]
      def ends_early? = false
    end
    private_constant :Plan
  end
end
