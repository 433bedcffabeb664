# frozen_string_literal: true

module Memscope
  # When to return memory, and when to restart a worker: rules over the readings of a group of processes.
  #
  #   policy = Memscope::Policy.new(soft: 0.75)
  #   decision = policy.decide(groups)   # the last quarter of an hour, oldest first
  #   decision.action                    # => :restart
  #   decision.worker.pid                # => 4711
  #   decision.reason                    # => "The working set is 1,700.2 MiB, ..."
  #
  # A policy only decides: it reads no clock and no file, and changes nothing. See docs/policy.md for the rules.
  class Policy
    WORDS = Words.beside(__FILE__)
    # From the mildest to the last resort.
    ACTIONS = %i[none purge restart].freeze

    # For each rule, the default, and the range of allowed numbers.
    RULES = File.read("#{__dir__}/policy/rules.txt").scan(/^(\w+) ([\d.]+) (\S+)\.\.(\S+)$/).to_h do |name, *numbers|
      default, least, most = numbers.map { |number| Integer(number, exception: false) || Float(number) }
      [name.to_sym, [default, least..most].freeze]
    end.freeze
    CALL = "Memscope::Policy.new"
    private_constant :WORDS, :RULES, :CALL

    # @!attribute [r] soft
    #   @return [Numeric] share of the limit above which the policy acts, if usage stays there for long enough
    # @!attribute [r] hard
    #   @return [Numeric] share of the limit above which a restart comes before a purge, and need not wait as long; by
    #     default at least `soft`
    # @!attribute [r] readings
    #   @return [Integer] how many readings in a row must be above `soft`
    # @!attribute [r] sustained_seconds
    #   @return [Numeric] how many seconds these readings must span at least
    # @!attribute [r] eta_seconds
    #   @return [Numeric] leaks that reach the limit within this many seconds count as above `soft`
    # @!attribute [r] least_share
    #   @return [Numeric] the minimum share of the excess that an action must return
    # @!attribute [r] min_uptime_seconds
    #   @return [Numeric] a worker that started less than this many seconds ago is not restarted
    # @!attribute [r] hard_min_uptime_seconds
    #   @return [Numeric] replaces `min_uptime_seconds` above `hard` if the group is about to reach the limit (at its
    #     present growth, within `gap_seconds`) and the last restart was at least `min_uptime_seconds` ago
    # @!attribute [r] interval_seconds
    #   @return [Numeric] the minimum time between two restarts, and between two purges of one worker
    # @!attribute [r] hard_interval_seconds
    #   @return [Numeric] the minimum time between two restarts above `hard`
    # @!attribute [r] settle_seconds
    #   @return [Numeric] the time from a purge, or from a successor's boot, to the measurement of the result
    # @!attribute [r] stop_seconds
    #   @return [Numeric] how long to restart nothing after a restart that did not help, how long to wait for an action
    #     that has not ended, and how long the worker that was restarted last is spared
    # @!attribute [r] failed_boots
    #   @return [Integer] how many failed boots, summed over the last two restarts, stop all restarts until a successor
    #     has run for `min_uptime_seconds`
    # @!attribute [r] jitter
    #   @return [Numeric] `sustained_seconds`, the uptimes and the intervals are lengthened by up to this share. How
    #     much depends on the host and the worker, so that hosts do not act at the same time. No time is shortened
    # @!attribute [r] gap_seconds
    #   @return [Numeric] readings before a gap longer than this do not count
    attr_reader(*RULES.keys)

    # @param rules [Hash{Symbol => Numeric}] the rules that differ from their defaults, by the names of the attributes
    # @raise [ArgumentError] naming the rule, the given value and the allowed values
    def initialize(**rules)
      unknown = (rules.keys - RULES.keys).first
      Field.refuse(nil, unknown, RULES.keys.join(", "), call: CALL) if unknown
      RULES.each do |name, (default, range)|
        instance_variable_set(:"@#{name}", checked(name, rules.fetch(name, default), default, range))
      end
      @hard = [soft, hard].max unless rules.key?(:hard)
      Field.refuse(:hard, hard, "#{soft} or more, which soft is", call: CALL) if hard < soft
      freeze
    end

    # @param readings [Array<Group>] those of the last quarter of an hour, or more, oldest first; the decision is about
    #   the newest reading
    # @return [Decision]
    # @raise [ArgumentError] unless there is at least one reading, and all are Groups
    def decide(readings)
      groups = readings.is_a?(Array) && readings.any? && readings.all?(Group)
      allowed = "an Array of one or more Policy::Group"
      groups or Field.refuse(:readings, readings, allowed, call: "Memscope::Policy#decide")
      DecisionRules.new(self, ReadingWindow.new(self, readings)).decision
    end

    # @api private
    # @param who [Array<Object>] the seed of the jitter: the host, and the worker
    # @return [Float] the rule's time with its jitter: the same for the same host and worker, in any process
    def time(rule, *who)
      seed = who.join("/").unpack1("H*").hex
      public_send(rule) * (1 + (jitter * Random.new(seed).rand))
    end

    private

    def checked(name, given, default, range)
      whole = default.is_a?(Integer)
      return given if given.is_a?(whole ? Integer : Numeric) && given.real? && range.cover?(given)

      allowed = "#{whole ? 'an Integer' : 'a number'} from #{range.begin} to #{range.end}"
      Field.refuse(name, given, allowed, call: CALL)
    end
  end
end

%w[group reading_window restart_rules decision_rules].each { |part| require_relative "policy/#{part}" }
