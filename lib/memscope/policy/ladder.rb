# frozen_string_literal: true

require_relative "../report/quantity"
require_relative "restarts"

module Memscope
  class Policy < Record
    # One decision: the first rung of the ladder that returns enough, or why none is taken.
    #
    # @api private
    class Ladder
      include Report::Quantity

      # The rungs before a restart, and what each does to a worker.
      LEVERS = { purge: "purging", gc: "collecting garbage in", compact: "compacting the heap of",
                 fewer_threads: "lowering the threads of" }.freeze
      private_constant :LEVERS

      # @param policy [Policy]
      # @param window [Window]
      def initialize(policy, window)
        @policy = policy
        @window = window
        @group = window.newest
        @restarts = Restarts.new(policy, window)
      end

      # @return [Decision]
      def decision
        why = unknown || waiting
        @over = @window.over_bytes unless why
        why ||= in_transition
        return decided(:none, why) if why

        (@window.hard? ? restart || lever : lever || restart) || decided(:none, @why_no_restart)
      end

      private

      def unknown
        return "no limit is set for the memory of this server's processes" unless @group.limit_bytes
        return if @group.working_set_bytes && @group.limit_bytes.positive?

        ["the working set is unknown", *@group.reasons[:working_set_bytes]].join(": ")
      end

      # Why nothing needs to be done yet.
      def waiting
        return if @window.hard? || @window.soft? || @window.leak?
        return "it is below the soft limit, #{percent(@policy.soft)}" unless @window.above_soft.any?

        "above the soft limit, #{percent(@policy.soft)}, for #{counted(@window.above_soft.size, 'readings')} over " \
          "#{seconds(@window.soft_seconds)}; needed: #{@policy.readings} readings over " \
          "#{seconds(@policy.time(:sustained_seconds, @group.host))}"
      end

      def in_transition
        booting = @group.members.find { |member| !member.booted? }
        return "#{booting.title} has not booted yet, or is stopping" if booting

        pending = @group.outcomes.find { |outcome| outcome.executed? && pending?(outcome) } or return
        "#{pending.action} of #{pending.title}, #{seconds(@group.seconds - pending.seconds)} ago, " \
          "#{pending.booted_seconds ? 'is not measured yet' : 'has not ended yet'}"
      end

      # A successor may never boot, and the measurement may never come, for example after a gap in the readings. Then
      # the outcome stays unknown.
      def pending?(outcome)
        return @group.seconds < outcome.seconds + @policy.stop_seconds unless outcome.booted_seconds

        late = outcome.returned_bytes ? 0 : @policy.gap_seconds
        @group.seconds < outcome.booted_seconds + @policy.settle_seconds + late
      end

      # Workers that an action may be used on, each with the bytes that the action returns, the largest first.
      def uses_of(action)
        uses = @group.members.filter_map do |member|
          bytes = predicted(action, member)
          [member, bytes] if bytes&.positive? && !used?(action, member)
        end
        uses.sort_by { |member, bytes| [-bytes, member.busy.to_i, member.pid] }
      end

      def predicted(action, member)
        return if member.refused.key?(action)
        return member.public_send(:"#{action}_bytes") unless action == :fewer_threads

        member.thread_bytes && lower(member) && (member.thread_bytes * (member.threads - lower(member)))
      end

      # Half of the way down to the least number of threads.
      def lower(member)
        member.threads && member.least_threads && ((member.threads + member.least_threads) / 2)
      end

      # Whether the action was used on this worker within the interval or, if it did not help, within the last
      # `stop_seconds`.
      def used?(action, member)
        @group.outcomes.any? do |outcome|
          next false unless outcome.action == action && outcome.pid == member.pid

          @group.seconds - outcome.seconds < (outcome.useless? ? @policy.stop_seconds : interval)
        end
      end

      def interval = @interval ||= @policy.time(:interval_seconds, @group.host)

      def enough?(bytes) = bytes.positive? && bytes >= @policy.least_share * @over

      # `lever` and `restart` return a Decision, or nil.

      def lever
        LEVERS.each_key do |action|
          uses = uses_of(action)
          return act(action, *uses.first) if enough?(uses.sum(&:last))
        end
        nil
      end

      def restart
        uses = @restarts.uses
        @why_no_restart = @restarts.refusal || (@restarts.nobody if uses.empty?)
        return if @why_no_restart
        return act(:restart, *uses.first) if enough?(uses.first(@restarts.per_hour).sum(&:last))

        @why_no_restart = "restarting #{uses.first.first.title} would return #{size(uses.first.last)}, too little of " \
                          "the #{size(@over)} that are over"
        nil
      end

      def act(action, member, bytes)
        doing = "#{LEVERS.fetch(action, 'restarting')} #{member.title} returns about #{size(bytes)}"
        threads = lower(member) if action == :fewer_threads
        decided(action, "#{size(@over)} over the soft limit, #{percent(@policy.soft)}: #{doing}",
                worker: member, expected_bytes: bytes, threads: threads)
      end

      def decided(action, conclusion, **body)
        Decision.capture({ action: action, over_bytes: @over, reason: "#{situation}#{conclusion}.", reasons: {},
                           cost: Cost.of(:T0), **body }, @group.envelope)
      end

      def situation
        return "Nothing to do: " unless @group.limit_bytes&.positive? && @group.working_set_bytes

        leak = "; leaks reach it in #{Verdict::Sentence.duration(@window.eta_seconds)}" if @window.leak?
        "The working set is #{size(@group.working_set_bytes)}, " \
          "#{percent(@group.working_set_bytes.fdiv(@group.limit_bytes))} of the limit#{leak}; "
      end

      def percent(share) = "#{(100 * share).round} %"

      def seconds(number) = "#{count(number.round)} s"
    end
    private_constant :Ladder
  end
end
