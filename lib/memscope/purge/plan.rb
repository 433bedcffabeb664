# frozen_string_literal: true

module Memscope
  module Purge
    # The checked arguments of a purge: invalid ones are refused before anything is done.
    #
    # @api private
    class Plan
      # @return [Array<Symbol>] each lever once, in order
      attr_reader :levers
      # @return [Integer, nil]
      attr_reader :arena
      # @return [Integer, Float]
      attr_reader :settle
      # @return [Hash{Symbol => String}] why Ruby's own levers are not among them; empty where levers were named
      attr_reader :refused

      # Checks the arguments of Memscope.purge.
      #
      # @raise [ArgumentError] naming the argument, what was given and what is allowed
      def initialize(levers, arena:, dry_run:, settle:)
        Purge.check_arena(CALL, arena)
        refuse("dry_run", dry_run, "true, false") unless [true, false].include?(dry_run)
        seconds = settle.is_a?(Numeric) && settle.real? && (0..LONGEST_SETTLE).cover?(settle)
        refuse("settle", settle, "a number of seconds from 0 to #{LONGEST_SETTLE}") unless seconds
        check_levers(levers, arena)
        @levers = LEVERS & (levers.empty? ? usual(arena) : levers)
        @refused = levers.empty? && arena.nil? ? Purge.missing.slice(*HOLDING_GVL).compact : {}
        @arena = arena
        @dry_run = dry_run
        @settle = settle.is_a?(Integer) ? settle : settle.to_f
        freeze
      end

      # @return [Boolean]
      def dry_run? = @dry_run

      private

      CALL = "Memscope.purge"
      private_constant :CALL

      # All levers of this process; of one arena those that it can be purged by.
      def usual(arena)
        here = LEVERS & Purge.missing.select { |_lever, reason| reason.nil? }.keys
        arena ? here & OF_ONE_ARENA : here
      end

      def check_levers(levers, arena)
        allowed = usual(arena)
        return if (levers - allowed).empty?

        wrong = (levers - allowed).first
        refuse("lever", wrong, "#{allowed.map(&:inspect).join(', ')}#{explanation(wrong, Purge.missing[wrong], arena)}")
      end

      def explanation(lever, missing, arena)
        served = ", and #{server} serves malloc" unless HOLDING_GVL.include?(lever)
        return "; #{lever.inspect} is not there: #{missing}#{served}" if missing

        "; with arena: only these" if arena && LEVERS.include?(lever)
      end

      def server = Native.allocator[:name].then { |name| name == :unknown ? "something unknown" : name }

      def refuse(argument, given, allowed)
        raise ArgumentError, "#{CALL}: #{argument}: given #{given.inspect}, allowed: #{allowed}"
      end
    end
    private_constant :Plan
  end
end
