# frozen_string_literal: true

module Memscope
  class Policy
    # Which worker to restart, or why none.
    # @api private
    class RestartRules
      include Quantity

      HOUR = 3600.0

      def initialize(policy, window)
        @policy = policy
        @group = window.newest
        @hard = window.hard?
        @past = @group.outcomes.select { |outcome| outcome.action == :restart }
        @last = @past.last
        # If a worker was restarted recently, the other workers will soon have run for long enough.
        @hurried = window.imminent? && (@last.nil? || ago(@last.seconds) >= @policy.min_uptime_seconds)
      end

      # @return [String, nil] why no worker may be restarted now; nil if one may
      def refusal = unsupervised || failed_boots || useless || too_soon || unhealthy

      # @return [Array<Array(Member, Integer)>] workers that may be restarted, each with the bytes that its restart
      #   returns, the largest first
      def uses
        uses = @group.members.reject { |member| why_not(member) }.map { |member| [member, expected_bytes(member)] }
        uses.sort_by { |member, bytes| [-bytes, -member.leak_bytes_per_hour.to_i, member.pid] }
      end

      # @return [Integer] how many workers can be restarted within an hour
      def per_hour = [HOUR / [interval, 1].max, 1].max.floor

      # @return [String] why no worker is in `uses`
      def nobody
        why = @group.members.map { |member| why_not(member) }.tally
        why = why.map { |reason, times| "#{reason} (#{counted(times, 'workers')})" }
        WORDS.fill(:nobody, reasons: why.join("; "))
      end

      private

      # Why a worker may not be restarted now; nil if it may.
      def why_not(member)
        return WORDS.fill(:exempt, why: member.exempt) if member.exempt
        return WORDS[:unread] unless member.private_bytes

        rules = @hurried ? %i[min_uptime_seconds hard_min_uptime_seconds] : %i[min_uptime_seconds]
        least = least_time(rules, member.index || member.pid)
        return WORDS.fill(:young, uptime: least.round) if uptime(member) < least
        return WORDS[:last] if last?(member)

        WORDS[:needs_as_much] unless expected_bytes(member).positive?
      end

      def least_time(rules, *who) = rules.map { |rule| @policy.time(rule, @group.host, *who) }.min

      def ago(seconds) = @group.seconds - seconds

      def uptime(member) = ago(member.started_seconds)

      # The successor of the last restarted worker is restarted next only if it leaks, if it is the only worker, or
      # after `stop_seconds`.
      def last?(member)
        member.index && @last&.worker&.index == member.index && @group.members.size > 1 &&
          member.leak_bytes_per_hour.nil? && ago(@last.seconds) < @policy.stop_seconds
      end

      # Bytes that a successor will not need again: those that leaked, or those beyond the other workers' usual memory.
      # Above the hard limit, at least half of its private memory: a successor needs a while to use as much.
      def expected_bytes(member)
        leaked = (member.leak_bytes_per_hour.to_i * uptime(member) / HOUR).round
        least = @hard ? member.private_bytes / 2 : 0
        [leaked, member.private_bytes - usual_bytes(member), least].max.clamp(0, member.private_bytes)
      end

      # The median private memory of the other workers that are warm.
      def usual_bytes(member)
        others = @group.members.select { |other| other != member && uptime(other) >= @policy.min_uptime_seconds }
        sizes = others.filter_map(&:private_bytes).sort
        sizes.empty? ? member.private_bytes : sizes[sizes.size / 2]
      end

      def unsupervised = (WORDS[:unsupervised] unless @group.supervised?)

      # Until a successor has booted since, and has run for long enough.
      def failed_boots
        failed = @past.last(2).sum(&:failed_boots)
        booted = @last&.booted_seconds
        return if failed < @policy.failed_boots || (booted && ago(booted) >= @policy.min_uptime_seconds)

        WORDS.fill(:failed_boots, failed: failed, uptime: @policy.min_uptime_seconds.round)
      end

      def useless
        last = @past.reverse.find(&:useless?) or return
        left = @policy.stop_seconds - ago(last.seconds)
        return unless left.positive?

        WORDS.fill(:useless, expected: size(last.expected_bytes), returned: size(last.returned_bytes),
                             time: duration(left))
      end

      def too_soon
        return if @last.nil? || ago(@last.seconds) >= interval

        WORDS.fill(:too_soon, ago: ago(@last.seconds).round, interval: interval.round)
      end

      def interval = least_time(@hard ? %i[interval_seconds hard_interval_seconds] : %i[interval_seconds])

      # All workers but one must serve during a restart.
      def unhealthy
        serving = @group.members.count(&:booted?)
        WORDS.fill(:unhealthy, serving: serving, workers: @group.workers) if serving < @group.workers
      end
    end
  end
end
