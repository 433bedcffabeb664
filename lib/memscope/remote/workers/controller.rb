# frozen_string_literal: true

module Memscope
  class Workers < Reading
    # Follows Memscope::Policy for the processes that share one memory limit: once a minute it reads the group, decides,
    # logs and counts the decision and, if the setting `policy` is :act, carries it out.
    #
    # The thread that listens calls `step` or, without one, the thread that samples this process. `step` raises nothing,
    # and does not wait for the effects of an action: a later step reads them. Only a purge blocks the thread, in a
    # cluster for at most PumaHost::TIMEOUT seconds.
    #
    # The host (PumaHost, SingleHost) hides the differences between servers. It has `members`, `workers`, `supervised?`,
    # `logger`, the actions, `obstacle` (why nothing may be done now) and `successor` (the outcome of a restart). Its
    # `restart` yields when nothing prevents the restart any more, and before its own process ends.
    # @api private
    class Controller
      include Quantity

      # The number of readings that a decision is based on: those of a quarter of an hour.
      MAX_READINGS = 15
      # The number of actions that are known: those of more than `Policy#stop_seconds`.
      MAX_OUTCOMES = 1000
      # A line is logged again only if it last came up this many seconds ago.
      LOG_AGAIN_SECONDS = 3600
      WORDS = Words.beside(__FILE__)

      # The memory of a worker is unknown if its last report is missing or old. `rest` is from the host.
      def self.member(worker, **rest)
        verdict = worker.verdict if worker.verdict&.kind == :leak
        sizes = { private_bytes: worker.uss_bytes, leak_bytes_per_hour: verdict&.bytes_per_hour,
                  purge_bytes: worker.purge_bytes }
        sizes = {} if worker.reasons.key?(:at)
        Policy::Member.capture({ index: worker.index, pid: worker.pid, **sizes, **rest })
      end

      # The readings that the last decision was based on, oldest first.
      attr_reader :groups

      # Lines go to `log`, which is Puma's, if no logger is configured.
      def initialize(host, log = nil)
        @host = host
        @log = log
        @groups = @outcomes = [].freeze
        @decided = {}.freeze
        @due = 0
        @logged = {}
      end

      # The fields of a Worker about the policy.
      def fields = { policy_decisions: @decided, policy_decision: @last }

      # Takes a step in the thread that listens, if there is one, since an action can take long.
      def run_soon
        listener = Listener.current unless Memscope.autoload?(:Listener)
        listener ? listener.soon(self) : step
      end

      def step
        @host.advance
        return if Configuration.effective(:policy) == :off || Clock.now < @due

        why = @host.obstacle
        return @last = "Nothing to do: #{why}." if why

        policy = Policy.new(**rules)
        @due = Clock.now + (policy.sustained_seconds / policy.readings)
        @groups = [*@groups, read(policy)].last(MAX_READINGS).freeze
        introduce(policy)
        follow(policy.decide(@groups))
      rescue StandardError => e
        log_once("policy: an error: #{e.message} (#{e.class})")
      end

      def log(text)
        logger = Configuration.effective(:logger) || @host.logger
        logger ? logger.info("memscope: #{text}") : @log&.log("memscope: #{text}")
      end

      private

      def rules
        %i[soft interval_seconds min_uptime_seconds].to_h { |rule| [rule, Configuration.effective(:"policy_#{rule}")] }
      end

      # Logs whether the policy acts, and its limits, at first and whenever that changes.
      def introduce(policy)
        limit = @groups.last.limit_bytes
        log_once(WORDS.fill(limit ? :begins : :begins_without_limit,
                            does: act? ? "acts" : "observes", limit: size(limit), soft: (100 * policy.soft).round))
      end

      def act? = Configuration.effective(:policy) == :act

      def read(policy)
        cgroup = Cgroup.read
        now = Clock.boot.round(3)
        members = @host.members
        @outcomes = @outcomes.map { |outcome| settled(outcome, policy, members, now) }.freeze
        Policy::Group.capture({ seconds: now, host: Socket.gethostname, limit_bytes: cgroup.limit_bytes,
                                working_set_bytes: cgroup.working_set_bytes, supervised: @host.supervised?,
                                workers: @host.workers, members: members, outcomes: @outcomes })
      end

      # Follows an action until the memory that it returned is measured, `settle_seconds` after it or, for a restart,
      # after successor has booted.
      def settled(outcome, policy, members, now)
        return outcome if !outcome.executed? || outcome.returned_bytes

        booted = outcome.booted_seconds
        return now < booted + policy.settle_seconds ? outcome : measured(outcome, members) if booted

        booted, failed = @host.successor(outcome)
        outcome.with(failed_boots: failed, booted_seconds: (now if booted))
      end

      def measured(outcome, members)
        worker = outcome.worker
        left = members.find { |member| member.index == worker.index }&.private_bytes
        return outcome unless left && worker.private_bytes

        returned = worker.private_bytes - left
        log(WORDS.fill(:returned, action: outcome.action, worker: worker.title, returned: size(returned),
                                  expected: size(outcome.expected_bytes)))
        outcome.with(returned_bytes: returned)
      end

      def follow(decision)
        return nothing(decision) if decision.none?

        failure = (carry_out(decision) if act?)
        executed = act? && failure.nil?
        @outcomes = [*@outcomes, outcome_of(decision, executed)].last(MAX_OUTCOMES).freeze
        tally(decision.action, executed)
        @last = "#{'would ' unless act?}#{decision.action} #{decision.worker.title}: #{decision.reason}" \
                "#{" Not done: #{failure}" if failure}"
        log("policy: #{@last}")
      end

      # Logs a decision to do nothing only if something was to be done: the group is too large.
      def nothing(decision)
        tally(:none, false)
        @last = decision.reason
        log_once("policy: #{decision.reason}") if decision.over_bytes
      end

      def outcome_of(decision, executed)
        ended = Clock.boot.round(3) if executed && decision.action == :purge
        Policy::Outcome.capture({ action: decision.action, worker: decision.worker, executed: executed,
                                  seconds: @groups.last.seconds, expected_bytes: decision.expected_bytes,
                                  booted_seconds: ended, failed_boots: 0 })
      end

      # Returns why the decision was not carried out, or nil if it was.
      def carry_out(decision)
        worker = decision.worker
        if decision.action == :restart
          @host.restart(worker) { Notifications.tell(:restart) { decision.to_h } }
        else
          @host.purge(worker, [*Purge.allocators_lever])
        end
        nil
      rescue StandardError => e
        "#{e.message} (#{e.class})"
      end

      def tally(action, executed)
        key = executed ? :executed : :not_executed
        counts = @decided.fetch(action, {})
        @decided = { **@decided, action => { **counts, key => counts.fetch(key, 0) + 1 }.freeze }.freeze
      end

      # Most decisions are to do nothing, for the same reason as a minute ago but with other numbers. Such a line is
      # logged once, and again only after it has not come up for LOG_AGAIN_SECONDS.
      def log_once(text)
        kind = text.gsub(/[\d.,]+/, "")
        @logged.delete_if { |_kind, at| Clock.now - at > LOG_AGAIN_SECONDS }
        log(text) unless @logged.key?(kind)
        @logged[kind] = Clock.now
      end
    end
  end
end
