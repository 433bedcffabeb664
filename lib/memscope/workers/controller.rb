# frozen_string_literal: true

require "socket"
require_relative "../cgroup"
require_relative "evidence"
Memscope::Loading.units :Policy, :Purge

module Memscope
  class Workers < Reading
    # Follows Memscope::Policy for the processes that share one memory limit: once a minute it reads the group, decides,
    # logs and counts the decision and, if the setting `policy` is :act, carries it out.
    #
    # The thread that takes readings of this process calls `step`, which raises nothing. A step does not wait for the
    # effects of an action: a later step reads them. Only an action, or the evidence of a restart, blocks the thread, in
    # a cluster for at most Evidence::PATIENCE seconds each.
    #
    # The host (PumaHost, SingleHost) has what differs between kinds of servers: `members`, `workers`, `supervisor`, why
    # nothing may be done now (`obstacle`), the actions, and what became of a restart (`successor`).
    #
    # @api private
    class Controller
      include Report::Quantity

      # The number of readings that a decision is based on: those of a quarter of an hour.
      KEPT = 15
      # A line that has not come up for this many seconds is logged again.
      AGAIN = 3600
      NO_LIMIT = ", but there is no memory limit: it does nothing"
      private_constant :KEPT, :AGAIN, :NO_LIMIT

      class << self
        # @param worker [Worker] its last report
        # @param rest [Hash{Symbol => Object}] what the host knows of it
        # @return [Policy::Member]
        def member(worker, **rest)
          Policy::Member.capture({ index: worker.index, pid: worker.pid, **sizes(worker),
                                   refused: { compact: Purge.missing[:compact] }.compact, **rest })
        end

        private

        # Nothing if the report is missing or old.
        def sizes(worker)
          return {} if worker.reasons.key?(:at)

          verdict = worker.verdict
          predicted = worker.predicted_bytes || {}
          { private_bytes: worker.uss_bytes, rss_bytes: worker.rss_bytes, verdict: verdict&.kind,
            bytes_per_hour: verdict&.bytes_per_hour, eta_seconds: verdict&.eta_seconds, purge_bytes: predicted[:purge],
            compact_bytes: predicted[:compact], thread_bytes: predicted[:thread] }
        end
      end

      # @return [Array<Policy::Group>] the readings that the last decision was based on, oldest first
      attr_reader :groups

      def initialize(host)
        @host = host
        @groups = [].freeze
        @decided = {}.freeze
        @due = 0
        @said = {}
      end

      # @return [Hash{Symbol => Object}] the fields of a Worker about the policy
      def fields = { policy_decisions: @decided, policy_decision: @last }

      # Does what is due.
      #
      # @return [void]
      def step
        @host.advance
        return if Workers.setting(:policy) == :off || Clock.now < @due

        why = @host.obstacle
        return put_off(why) if why

        policy = Policy.new(**rules)
        @due = Clock.now + (policy.sustained_seconds / policy.readings)
        @groups = [*@groups, read(policy)].last(KEPT).freeze
        introduce(policy)
        follow(policy.decide(@groups))
        Evidence.record(@groups.last)
      rescue StandardError => e
        log_once("policy: an error: #{e.message} (#{e.class})")
      end

      private

      # What the group does now must not count in later decisions.
      def put_off(why)
        @groups = [].freeze
        @last = "Nothing to do: #{why}."
      end

      def rules
        soft = Workers.setting(:policy_soft)
        { soft: soft, hard: [soft, 0.95].max, interval_seconds: Workers.setting(:policy_interval_seconds),
          min_uptime_seconds: Workers.setting(:policy_min_uptime_seconds) }
      end

      # Logs what to expect of the policy, at first and whenever that changes.
      def introduce(policy)
        limit = @groups.last.limit_bytes
        text = "policy: #{Workers.setting(:policy) == :act ? 'acts' : 'observes'}" \
               "#{limit ? "; limit #{size(limit)}, soft #{(100 * policy.soft).round} %" : NO_LIMIT}"
        @host.log(text) unless @introduced == text
        @introduced = text
      end

      def read(policy)
        since = Cost.now
        cgroup = Cgroup.read
        now = Clock.now.round(3)
        members = @host.members
        @outcomes ||= @host.earlier_restarts
        @outcomes.each { |outcome| settle(outcome, policy, cgroup.working_set_bytes, members, now) }
        forget(now - policy.stop_seconds)
        Policy::Group.capture({ seconds: now, host: Socket.gethostname, limit_bytes: cgroup.limit_bytes,
                                working_set_bytes: cgroup.working_set_bytes, supervisor: @host.supervisor,
                                workers: @host.workers, members: members,
                                outcomes: @outcomes.map { |outcome| public_part(outcome) },
                                reasons: {}, cost: Cost.of(:T1, Cost.now - since) })
      end

      # Measures what an action returned, `settle_seconds` after it or, for a restart, after the successor has booted.
      def settle(outcome, policy, working_set, members, now)
        return unless outcome[:executed] && outcome[:returned_bytes].nil? && outcome[:others]

        if outcome[:action] == :restart && outcome[:booted_seconds].nil?
          booted, outcome[:failed_boots] = @host.successor(outcome)
          outcome[:booted_seconds] = now if booted
        elsif working_set && now >= outcome[:booted_seconds] + policy.settle_seconds
          measure(outcome, policy, working_set, others(members, outcome[:index]))
        end
      end

      def measure(outcome, policy, working_set, others)
        grown = growth(outcome[:others], others)
        return outcome[:others] = nil unless grown # it stays unknown

        outcome[:returned_bytes] = outcome[:before] - working_set + grown
        @host.log("policy: #{returned(Policy::Outcome.capture(public_part(outcome)), policy)}")
      end

      def public_part(outcome) = outcome.except(:before, :others)

      # The RSS of each worker except the one with this index, by number and pid. Not the USS, which changes when
      # another process that shares the pages ends or begins.
      def others(members, index)
        numbered = members.select { |member| member.index && member.index != index }
        numbered.to_h { |member| [[member.index, member.pid], member.rss_bytes] }
      end

      # The growth of the workers whose sizes are known both times; a worker that did not exist had 0 bytes. Returns nil
      # if a worker was replaced, as when the kernel has killed it: the memory that its end returned cannot be told from
      # the memory that the action returned.
      def growth(earlier, later)
        gone, come = [earlier.keys - later.keys, later.keys - earlier.keys].map { |workers| workers.map(&:first) }
        return if gone.intersect?(come)

        (earlier.keys | later.keys).sum do |worker|
          before, after = [earlier, later].map { |sizes| sizes.fetch(worker, 0) }
          before && after ? after - before : 0
        end
      end

      def returned(outcome, policy)
        stopped = outcome.action == :restart ? "no restart" : "not again"
        less = ", less than half: #{stopped} for #{Verdict::Sentence.duration(policy.stop_seconds)}" if outcome.useless?
        "#{outcome.action} of #{outcome.title} returned #{size(outcome.returned_bytes)}, expected " \
          "#{size(outcome.expected_bytes)}#{less}"
      end

      def forget(before)
        restarts = @outcomes.select { |outcome| outcome[:action] == :restart }.last(2)
        @outcomes.select! { |outcome| outcome[:seconds] > before || restarts.include?(outcome) }
      end

      def follow(decision)
        return nothing(decision) if decision.none?

        act = Workers.setting(:policy) == :act
        outcome = outcome_of(decision)
        failure = act ? carry_out(decision, outcome) : nil
        outcome[:executed] = act && failure.nil?
        outcome[:booted_seconds] = Clock.now.round(3) if outcome[:executed] && decision.action != :restart
        @outcomes << outcome
        tally(decision.action, outcome[:executed])
        @last = "#{'would ' unless act}#{sentence(decision)}#{" Not done: #{failure}" if failure}"
        @host.log("policy: #{@last}")
      end

      # Logs a decision to do nothing only if something was to be done: the group is too large.
      def nothing(decision)
        tally(:none, false)
        @last = decision.reason
        log_once("policy: #{decision.reason}") if decision.over_bytes
      end

      def outcome_of(decision)
        group = @groups.last
        others = others(group.members, decision.worker.index)
        { **Policy::Outcome.observed(decision, group.seconds).to_h, before: group.working_set_bytes, others: others }
      end

      # Returns why the decision was not carried out; nil if it was.
      def carry_out(decision, outcome)
        worker = decision.worker
        case decision.action
        when :restart
          Evidence.keep(@host, decision, @groups)
          @host.restart(worker, outcome)
        when :fewer_threads then @host.lower_threads(worker, decision.threads)
        else @host.purge(worker, levers(decision.action))
        end
        nil
      rescue StandardError => e
        "#{e.message} (#{e.class})"
      end

      # malloc keeps what a garbage collection frees, so malloc is purged afterwards.
      def levers(action)
        [*{ purge: [], gc: %i[gc], compact: %i[gc compact] }.fetch(action), *Purge.allocators_lever]
      end

      def sentence(decision)
        worker = decision.worker
        name = worker.index ? worker.title : "process #{worker.pid}"
        threads = " to #{decision.threads}" if decision.threads
        "#{decision.action}#{threads} #{name}: #{decision.reason}"
      end

      def tally(action, executed)
        key = executed ? :executed : :not_executed
        counts = @decided.fetch(action, {})
        @decided = { **@decided, action => { **counts, key => counts.fetch(key, 0) + 1 }.freeze }.freeze
      end

      # Most decisions are to do nothing, for the same reason as a minute ago but with other numbers. Such a line is
      # logged once, and again only after it has not come up for AGAIN seconds.
      def log_once(text)
        kind = text.gsub(/[\d.,]+/, "")
        @said.delete_if { |_kind, at| Clock.now - at > AGAIN }
        @host.log(text) unless @said.key?(kind)
        @said[kind] = Clock.now
      end
    end
  end
end
