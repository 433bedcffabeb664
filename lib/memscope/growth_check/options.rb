# frozen_string_literal: true

module Memscope
  class GrowthCheck < Reading
    # The checked options of a check, and what follows from them.
    #
    # @api private
    class Options
      DEFAULTS = { iterations: 100, runs: 5, warmup: :auto, max: 0, ignore: [], in: nil, deadline: 60 }.freeze
      # The most rounds that an automatic warm-up takes.
      WARMUP_ROUNDS = 10
      PLACES = [nil, :fork, :process].freeze
      # With fewer iterations, a few objects more or less could look like one per iteration.
      ITERATIONS = (10..1_000_000)
      RUNS = (2..100)
      private_constant :PLACES, :ITERATIONS, :RUNS

      # @return [Integer]
      attr_reader :iterations, :runs, :max
      # @return [Numeric] seconds
      attr_reader :deadline

      # @raise [ArgumentError] for an unknown option or an invalid value
      def initialize(**given)
        unknown = given.keys - DEFAULTS.keys
        refuse("option", unknown.first, DEFAULTS.keys.join(", ")) if unknown.any?
        @iterations, @runs, @warmup, @max, ignore, @in, @deadline = DEFAULTS.merge(given).values
        check
        @ignored = (ignore.is_a?(Array) ? ignore : [ignore]).each { |one| check_ignored(one) }
      end

      # @return [Boolean] whether growth of malloc counts
      def malloc? = !@ignored.include?(:malloc)

      # @return [Integer] iterations before the first count
      def unjudged = @warmup == :auto ? iterations : @warmup

      # @return [Integer] the most rounds that are counted
      def rounds = @warmup == :auto ? WARMUP_ROUNDS - 1 + runs : runs

      # @return [Boolean] whether rounds without growth end the check
      def ends_early? = true

      # @return [Numeric, nil] seconds until what has grown is counted once more
      def pause = nil

      # @param name [String] of a class
      # @return [Boolean] whether its objects may grow
      def ignored_class?(name) = @ignored.any? { |one| one.is_a?(Regexp) ? one.match?(name) : class?(one, name) }

      # @param place [String]
      # @return [Boolean] whether what it allocates may grow
      def ignored_place?(place) = @ignored.any? { |one| one.is_a?(Regexp) && one.match?(place) }

      # @param growth [Numeric] in a round
      # @return [Integer] per iteration, rounded
      def per_iteration(growth) = growth.fdiv(iterations).round

      # @param growth [Numeric] in a round
      # @return [Boolean] whether that is more than allowed
      def excessive?(growth) = per_iteration(growth) > max

      # @return [Array(Symbol, String), Array(Symbol, nil)] :fork or :process, and why it is :process if that was not
      #   asked for
      def place
        return [@in, nil] if @in
        return [:process, "this platform cannot fork"] unless Process.respond_to?(:fork)
        return [:fork, nil] unless transaction_open?

        [:process, "a database connection has an open transaction, whose rows a forked child could not see; what " \
                   "other threads keep meanwhile counts too"]
      end

      private

      def check
        refuse("iterations", iterations, "an Integer from 10 to 1,000,000") unless within?(iterations, ITERATIONS)
        refuse("runs", runs, "an Integer from 2 to 100") unless within?(runs, RUNS)
        refuse("warmup", @warmup, ":auto, a number of iterations") unless @warmup == :auto || within?(@warmup, 0..)
        refuse("max", max, "an Integer, 0 or more") unless within?(max, 0..)
        Field.choice("Memscope::GrowthCheck.run: in", @in, PLACES)
        Field.seconds("Memscope::GrowthCheck.run: deadline", deadline, HeapGraph::DEADLINES)
      end

      def within?(value, range) = value.is_a?(Integer) && range.cover?(value)

      def check_ignored(one)
        return if one == :malloc || one.is_a?(Module) || one.is_a?(String) || one.is_a?(Regexp)

        refuse("ignore", one, "a Class, the name of a class, a Regexp, :malloc, a list of these")
      end

      # A class can redefine `name`.
      def class?(ignored, name)
        name == (ignored.is_a?(Module) ? Module.instance_method(:name).bind_call(ignored) : ignored)
      end

      def transaction_open?
        return false unless defined?(::ActiveRecord::Base)

        roles = ::ActiveRecord.version >= ::Gem::Version.new("7.1") ? :all : nil # both mean all roles
        pools = ::ActiveRecord::Base.connection_handler.connection_pool_list(roles)
        pools.any? { |pool| pool.connections.any?(&:transaction_open?) }
      end

      def refuse(what, given, allowed) = Field.refuse("Memscope::GrowthCheck.run: #{what}", given, allowed)
    end
    private_constant :Options
  end
end
