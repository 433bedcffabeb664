# frozen_string_literal: true

module Memscope
  class Check < Reading
    # The checked options of a check, and the values that follow from them.
    # @api private
    class Options
      DEFAULTS = { iterations: 100, runs: 5, warmup: :auto, max: 0, ignore: [], in: nil, deadline: 60 }.freeze
      # An automatic warm-up takes at most this many rounds.
      WARMUP_ROUNDS = 10
      # With fewer iterations, a few objects more or less could look like one per iteration.
      NUMBERS = { iterations: [10..1_000_000, "an Integer from 10 to 1,000,000"],
                  runs: [2..100, "an Integer from 2 to 100"], max: [0.., "an Integer, 0 or more"] }.freeze
      CALL = "Memscope::Check.run"

      # `deadline` and `pause` are in seconds. After `pause`, growth is counted once more.
      attr_reader :iterations, :runs, :max, :deadline, :pause

      # `rounds` are counted, whether anything grows or not.
      def initialize(given, rounds: nil, pause: nil)
        unknown = given.keys - DEFAULTS.keys
        refuse("option", unknown.first, DEFAULTS.keys.join(", ")) if unknown.any?
        @iterations, @runs, @warmup, @max, ignore, @in, @deadline = DEFAULTS.merge(given).values
        @ignored = ignore.is_a?(Array) ? ignore : [ignore]
        @rounds = rounds
        @pause = pause
        check
        # A class can redefine `name`.
        @ignored = @ignored.map { |one| one.is_a?(Module) ? Module.instance_method(:name).bind_call(one) : one }
      end

      def to_h = { iterations: iterations, runs: runs, max: max }

      def malloc? = !@ignored.include?(:malloc)

      # Iterations before the first count.
      def unjudged = @warmup == :auto ? iterations : @warmup

      # The maximum number of rounds that are counted.
      def rounds = @rounds || (@warmup == :auto ? WARMUP_ROUNDS - 1 + runs : runs)

      # True if rounds without growth end the check.
      def ends_early? = @rounds.nil?

      def ignored_class?(name) = @ignored.any? { |one| one.is_a?(Regexp) ? one.match?(name) : one == name }

      def ignored_place?(place) = @ignored.any? { |one| one.is_a?(Regexp) && one.match?(place) }

      # Rounded, from the growth in a round.
      def per_iteration(growth) = growth.fdiv(iterations).round

      def excessive?(growth) = per_iteration(growth) > max

      # :fork or :process, and why it is :process if the caller did not choose it.
      def place
        return [@in, nil] if @in
        return [:process, WORDS[:cannot_fork]] unless Process.respond_to?(:fork)
        return [:fork, nil] unless transaction_open?

        [:process, WORDS[:open_transaction]]
      end

      private

      def check
        NUMBERS.each do |name, (range, allowed)|
          value = public_send(name)
          refuse(name, value, allowed) unless within?(value, range)
        end
        refuse("warmup", @warmup, WORDS[:warmup]) unless @warmup == :auto || within?(@warmup, 0..)
        Field.choice(:in, @in, [nil, :fork, :process], call: CALL)
        Field.seconds(:deadline, deadline, HeapGraph::DEADLINES, call: CALL)
        wrong = @ignored.find { |one| one != :malloc && [Module, String, Regexp].none? { |type| one.is_a?(type) } }
        refuse("ignore", wrong, WORDS[:ignore]) if wrong
      end

      def within?(value, range) = value.is_a?(Integer) && range.cover?(value)

      def transaction_open?
        return false unless defined?(::ActiveRecord::Base)

        roles = ::ActiveRecord.version >= ::Gem::Version.new("7.1") ? :all : nil # both mean all roles
        pools = ::ActiveRecord::Base.connection_handler.connection_pool_list(roles)
        pools.any? { |pool| pool.connections.any?(&:transaction_open?) }
      end

      def refuse(what, given, allowed) = Field.refuse(what, given, allowed, call: CALL)
    end
  end
end
