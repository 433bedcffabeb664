# frozen_string_literal: true

require_relative "reading"

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
  class Policy < Record
    # From the mildest to the last resort.
    ACTIONS = %i[none purge gc compact fewer_threads restart].freeze

    # @return [Numeric] share of the limit above which the policy acts, if usage stays there for long enough
    field :soft, :number, null: false
    # @return [Numeric] share of the limit above which a restart comes before all other actions, and need not wait as
    #   long
    field :hard, :number, null: false
    # @return [Integer] how many readings in a row must be above `soft`
    field :readings, :count, null: false
    # @return [Numeric] how many seconds these readings must span at least
    field :sustained_seconds, :number, null: false
    # @return [Numeric] a leak that reaches the limit within this many seconds counts as above `soft`
    field :eta_seconds, :number, null: false
    # @return [Numeric] the least share of the excess that an action must return
    field :least_share, :number, null: false
    # @return [Numeric] a worker that started less than this many seconds ago is not restarted
    field :min_uptime_seconds, :number, null: false
    # @return [Numeric] replaces `min_uptime_seconds` above `hard` if the group is about to reach the limit (at its
    #   present growth, within `gap_seconds`) and the last restart was at least `min_uptime_seconds` ago
    field :hard_min_uptime_seconds, :number, null: false
    # @return [Numeric] the least time between two restarts, and between two equal actions on one worker
    field :interval_seconds, :number, null: false
    # @return [Numeric] the least time between two restarts above `hard`
    field :hard_interval_seconds, :number, null: false
    # @return [Numeric] the time from an action's end, or from a successor's boot, to the measurement of the result
    field :settle_seconds, :number, null: false
    # @return [Numeric] how long to restart nothing after a restart that did not help, how long to wait for an action
    #   that has not ended, and how long the worker that was restarted last is spared
    field :stop_seconds, :number, null: false
    # @return [Integer] how many failed boots, summed over the last two restarts, stop all restarts until a successor
    #   has run for `min_uptime_seconds`
    field :failed_boots, :count, null: false
    # @return [Integer, nil] how many workers must serve during a restart; nil for all but one
    field :min_healthy, :count
    # @return [Numeric] `sustained_seconds`, the uptimes and the intervals are lengthened by up to this share. How much
    #   depends on the host and the worker, so that hosts do not act at the same time. No time is shortened
    field :jitter, :number, null: false
    # @return [Numeric] readings before a gap longer than this do not count
    field :gap_seconds, :number, null: false

    # A duration of up to a week.
    WEEK = (0..604_800)
    # For each rule, the default, and the range of allowed numbers: only Integers unless the default is a Float.
    RULES = {
      soft: [0.8, 0.1..1], hard: [0.95, 0.1..1], readings: [5, 1..1000], sustained_seconds: [300.0, WEEK],
      eta_seconds: [7200.0, WEEK], least_share: [0.25, 0..1], min_uptime_seconds: [1800.0, WEEK],
      hard_min_uptime_seconds: [600.0, WEEK], interval_seconds: [900.0, WEEK], hard_interval_seconds: [300.0, WEEK],
      settle_seconds: [60.0, WEEK], stop_seconds: [21_600.0, WEEK], failed_boots: [2, 1..1000],
      min_healthy: [nil, 0..1000], jitter: [0.2, 0..0.5], gap_seconds: [150.0, 1..3600]
    }.freeze
    private_constant :WEEK, :RULES

    class << self
      # @api private
      # @return [Policy]
      def load(hash, where)
        Loading.whole { require_relative "loader" }
        new(**Loader.values(self, hash, where))
      end

      public :new
    end

    # @param rules [Hash{Symbol => Numeric}] the rules that differ from their defaults, by the names of the fields
    # @raise [ArgumentError] naming the rule, what was given and what is allowed
    def initialize(**rules)
      unknown = rules.keys - RULES.keys
      Field.refuse("Memscope::Policy.new", unknown.first, RULES.keys.join(", ")) if unknown.any?
      super(RULES.to_h { |name, (default, range)| [name, checked(name, rules.fetch(name, default), default, range)] })
      Field.refuse("Memscope::Policy.new: hard", hard, "#{soft} or more, which soft is") if hard < soft
    end

    # @param readings [Array<Group>] all of the last `window_seconds`, or more, oldest first; the decision is about the
    #   newest reading
    # @return [Decision]
    # @raise [ArgumentError] unless there is at least one reading, and all are Groups
    def decide(readings)
      groups = readings.is_a?(Array) && readings.any? && readings.all?(Group)
      groups or Field.refuse("Memscope::Policy#decide: readings", readings, "an Array of one or more Policy::Group")
      Ladder.new(self, Window.new(self, readings)).decision
    end

    # What this policy would have decided if it had only observed: for the later decisions, each decision counts as not
    # carried out.
    #
    # @param readings [Array<Group>] oldest first
    # @return [Array<Decision>] one for each reading
    # @raise [ArgumentError] as `decide`
    def replay(readings)
      window = []
      seen = []
      readings.map do |group|
        outcomes = [*group.outcomes.select(&:executed?), *seen].sort_by(&:seconds)
        window = [*window, group.with(outcomes: outcomes)]
        window.shift while group.seconds - window.first.seconds > window_seconds
        decide(window).tap { |decision| seen << Outcome.observed(decision, group.seconds) unless decision.none? }
      end
    end

    # @return [Float] how far back `decide` looks, in seconds
    def window_seconds = [sustained_seconds * (1 + jitter), readings * gap_seconds].max + gap_seconds

    # @api private
    # @param rule [Symbol] one of the rules in seconds
    # @param who [Array<Object>] what the jitter is seeded by: the host, and the worker
    # @return [Float] the rule's time with its jitter: the same for the same host and worker, in any process
    def time(rule, *who)
      seed = who.join("/").unpack1("H*").hex
      public_send(rule) * (1 + (jitter * Random.new(seed).rand))
    end

    private

    def checked(name, given, default, range)
      return given if given.nil? && default.nil?

      whole = !default.is_a?(Float)
      fits = given.is_a?(whole ? Integer : Numeric) && given.real? && range.cover?(given)
      allowed = "#{'nil, ' if default.nil?}#{whole ? 'an Integer' : 'a number'} from #{range.begin} to #{range.end}"
      fits ? given : Field.refuse("Memscope::Policy.new: #{name}", given, allowed)
    end
  end
end

require_relative "policy/group"
require_relative "policy/decision"
require_relative "policy/window"
require_relative "policy/ladder"
