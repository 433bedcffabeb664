# frozen_string_literal: true

Memscope::Loading.unit :Verdict

module Memscope
  class Policy
    # One decision: a purge or a restart, whichever comes first and returns enough, or why neither.
    # @api private
    class DecisionRules
      include Quantity

      def initialize(policy, window)
        @policy = policy
        @window = window
        @group = window.newest
      end

      def decision
        why = unknown || waiting
        @over = @window.over_bytes unless why
        why ||= in_transition
        return decided(:none, why) if why

        (@window.hard? ? restart || purge : purge || restart) || decided(:none, @why_no_restart)
      end

      private

      def unknown
        return WORDS[:no_limit] unless @group.limit_bytes

        WORDS[:unknown] unless @group.working_set_bytes && @group.limit_bytes.positive?
      end

      # Why nothing needs to be done yet.
      def waiting
        return if @window.hard? || @window.soft? || @window.leak?
        return WORDS.fill(:below, soft: percent(@policy.soft)) if @window.above_soft.empty?

        WORDS.fill(:waiting, soft: percent(@policy.soft), seen: counted(@window.above_soft.size, "readings"),
                             time: seconds(@window.soft_seconds), readings: @policy.readings,
                             needed: seconds(@policy.time(:sustained_seconds, @group.host)))
      end

      def in_transition
        booting = @group.members.find { |member| !member.booted? }
        return WORDS.fill(:booting, worker: booting.title) if booting

        pending = @group.outcomes.find { |outcome| outcome.executed? && pending?(outcome) } or return
        WORDS.fill(pending.booted_seconds ? :unmeasured : :running, action: pending.action,
                                                                    worker: pending.worker.title,
                                                                    time: seconds(@group.seconds - pending.seconds))
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
        members = @group.members.reject { |member| member.purge_bytes.to_i.zero? || purged?(member) }
        most = members.min_by { |member| [-member.purge_bytes, member.pid] }
        act(:purge, most, most.purge_bytes) if enough?(members.sum(&:purge_bytes))
      end

      # True if the worker was purged within the interval or, if that did not help, within the last `stop_seconds`.
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
        return act(:restart, *uses.first) if enough?(uses.first(rules.per_hour).sum(&:last))

        worker, bytes = uses.first
        @why_no_restart = WORDS.fill(:too_little, worker: worker.title, bytes: size(bytes), over: size(@over))
        nil
      end

      def enough?(bytes) = bytes.positive? && bytes >= @policy.least_share * @over

      def act(action, member, bytes)
        why = WORDS.fill(action, over: size(@over), soft: percent(@policy.soft), worker: member.title,
                                 bytes: size(bytes))
        decided(action, why, worker: member, expected_bytes: bytes)
      end

      def decided(action, why, **body)
        Decision.capture({ action: action, over_bytes: @over, reason: reason(why), **body })
      end

      def reason(why)
        return WORDS.fill(:nothing_to_do, why: why) if unknown

        WORDS.fill(@window.leak? ? :situation_with_leak : :situation,
                   working_set: size(@group.working_set_bytes), why: why,
                   share: percent(@group.working_set_bytes.fdiv(@group.limit_bytes)),
                   time: (duration(@window.eta_seconds) if @window.leak?))
      end

      def percent(share) = "#{(100 * share).round} %"

      def seconds(number) = "#{count(number.round)} s"
    end
  end
end
