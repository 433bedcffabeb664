# frozen_string_literal: true

require_relative "../../value/quantity"
require_relative "restart_rules"
Memscope::Loading.unit :Verdict

module Memscope
  class Policy
    # One decision: a purge or a restart, whichever comes first and returns enough, or why neither.
    #
    # @api private
    class DecisionRules
      include Quantity

      # @param policy [Policy]
      # @param window [ReadingWindow]
      def initialize(policy, window)
        @policy = policy
        @window = window
        @group = window.newest
      end

      # @return [Decision]
      def decision
        why = unknown || waiting
        @over = @window.over_bytes unless why
        why ||= in_transition
        return decided(:none, why) if why

        (@window.hard? ? restart || purge : purge || restart) || decided(:none, @why_no_restart)
      end

      private

      def unknown
        return "no limit is set for the memory of this server's processes" unless @group.limit_bytes

        "the working set is unknown" unless @group.working_set_bytes && @group.limit_bytes.positive?
      end

      # Why nothing needs to be done yet.
      def waiting
        return if @window.hard? || @window.soft? || @window.leak?
        return "it is below the soft limit, #{percent(@policy.soft)}" if @window.above_soft.empty?

        "above the soft limit, #{percent(@policy.soft)}, for " \
          "#{counted(@window.above_soft.size, 'readings')} over " \
          "#{seconds(@window.soft_seconds)}; needed: #{@policy.readings} readings " \
          "over #{seconds(@policy.time(:sustained_seconds, @group.host))}"
      end

      def in_transition
        booting = @group.members.find { |member| !member.booted? }
        return "#{booting.title} has not booted yet, or is stopping" if booting

        pending = @group.outcomes.find { |outcome| outcome.executed? && pending?(outcome) } or return
        "#{pending.action} of #{pending.worker.title}, #{seconds(@group.seconds - pending.seconds)} ago, " \
          "#{pending.booted_seconds ? 'is not measured yet' : 'has not ended yet'}"
      end

      # A successor may never boot, and the measurement may never come, for example after a gap in the readings. Then
      # the outcome stays unknown.
      def pending?(outcome)
        return @group.seconds < outcome.seconds + @policy.stop_seconds unless outcome.booted_seconds

        late = outcome.returned_bytes ? 0 : @policy.gap_seconds
        @group.seconds < outcome.booted_seconds + @policy.settle_seconds + late
      end

      # `purge` and `restart` return a Decision, or nil.

      def purge
        uses = @group.members.reject { |member| member.purge_bytes.to_i.zero? || purged?(member) }
                     .map { |member| [member, member.purge_bytes] }
                     .sort_by { |member, bytes| [-bytes, member.pid] }
        act(:purge, "purging", *uses.first) if enough?(uses.sum(&:last))
      end

      # Whether it was purged within the interval or, if that did not help, within the last `stop_seconds`.
      def purged?(member)
        interval = @policy.time(:interval_seconds, @group.host)
        @group.outcomes.any? do |outcome|
          outcome.action == :purge && outcome.worker.pid == member.pid &&
            @group.seconds - outcome.seconds < (outcome.useless? ? @policy.stop_seconds : interval)
        end
      end

      def restart
        rules = RestartRules.new(@policy, @window)
        uses = rules.uses
        @why_no_restart = rules.refusal || (rules.nobody if uses.empty?)
        return if @why_no_restart
        return act(:restart, "restarting", *uses.first) if enough?(uses.first(rules.per_hour).sum(&:last))

        @why_no_restart = "restarting #{uses.first.first.title} would return " \
                          "#{size(uses.first.last)}, too little of the " \
                          "#{size(@over)} that are over"
        nil
      end

      def enough?(bytes) = bytes.positive? && bytes >= @policy.least_share * @over

      def act(action, doing, member, bytes)
        decided(action, "#{size(@over)} over the soft limit, " \
                        "#{percent(@policy.soft)}: #{doing} #{member.title} returns " \
                        "about #{size(bytes)}", worker: member, expected_bytes: bytes)
      end

      def decided(action, conclusion, **body)
        Decision.capture({ action: action, over_bytes: @over, reason: "#{situation}#{conclusion}.", **body })
      end

      def situation
        return "Nothing to do: " if unknown

        leak = "; leaks reach it in #{duration(@window.eta_seconds)}" if @window.leak?
        "The working set is #{size(@group.working_set_bytes)}, " \
          "#{percent(@group.working_set_bytes.fdiv(@group.limit_bytes))} of the " \
          "limit#{leak}; "
      end

      def percent(share) = "#{(100 * share).round} %"

      def seconds(number) = "#{count(number.round)} s"
    end
    private_constant :DecisionRules
  end
end
