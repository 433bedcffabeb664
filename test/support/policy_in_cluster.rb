# frozen_string_literal: true

require "memscope"
require_relative "restart_rules"

module RestartRules
  # Memscope::Policy and the execution of its decisions: reads the group every minute, acts, follows, measures. Checks
  # each action against the cluster's true state.
  class Policy < None
    PERIOD = 60
    # Readings that it keeps: 16 minutes.
    KEPT = 16
    MEBIBYTE = 1_048_576
    private_constant :PERIOD, :KEPT, :MEBIBYTE

    # @return [Hash{Symbol => Integer}] how many decisions there were, by action
    attr_reader :decisions
    # @return [Array<String>] forbidden actions that were taken
    attr_reader :broken

    # @param policy [Memscope::Policy] the one that decides
    # @param faults [Random, nil] readings fail to come, and the machine is suspended, at random
    def initialize(policy = Memscope::Policy.new, faults: nil)
      super()
      @decides = policy
      @policy = Memscope::Policy.new # actions are checked by its numbers
      @faults = faults
      @noise = Random.new(1)
      @decisions = Hash.new(0)
      @broken = []
      @missed_until = @suspended = 0
      lost(nil)
    end

    # The container was killed, and its master with it.
    def lost(_cluster)
      @readings = []
      @outcomes = []
      @last_reading = @unbroken_since = nil
    end

    def step(cluster)
      follow(cluster)
      return unless (cluster.now % PERIOD).zero? && reading?(cluster)

      @readings = [*@readings, group(cluster)].last(KEPT)
      decision = @decides.decide(@readings)
      @decisions[decision.action] += 1
      return if decision.none?

      wrong = violations(cluster, decision)
      @broken.concat(wrong.map { |rule| "#{cluster.trace.kind} at #{cluster.now}: #{rule}: #{decision.reason}" })
      act(cluster, decision)
    end

    private

    def reading?(cluster)
      if @faults && @faults.rand < 0.005
        @missed_until = cluster.now + @faults.rand(30..1200)
        suspend if @faults.rand < 0.2
      end
      return false if cluster.now < @missed_until

      @unbroken_since = cluster.now unless @last_reading && cluster.now - @last_reading <= @policy.gap_seconds
      @last_reading = cluster.now
    end

    def suspend
      @suspended += 3600
      @last_reading = nil
    end

    def follow(cluster)
      last = @outcomes.last
      return if last.nil? || last[:returned_bytes]

      worker = cluster.workers.find { |one| one.index == last[:worker].index }
      if last[:booted_seconds].nil?
        last[:failed_boots] = cluster.boots[last[:worker].index] - last[:boots]
        last[:booted_seconds] = cluster.now.to_f if worker.serving? && worker.pid != last[:worker].pid
      elsif cluster.now >= last[:booted_seconds] + @policy.settle_seconds
        last[:returned_bytes] = last[:worker].private_bytes - bytes(worker.private)
      end
    end

    def act(cluster, decision)
      worker = cluster.workers.find { |one| one.pid == decision.worker.pid }
      @outcomes << { action: decision.action, worker: decision.worker, executed: true, seconds: cluster.now.to_f,
                     expected_bytes: decision.expected_bytes, failed_boots: 0, booted_seconds: nil,
                     returned_bytes: nil, boots: cluster.boots[worker.index] }
      return cluster.terminate(worker) if decision.action == :restart

      worker.purge
      @outcomes.last[:booted_seconds] = cluster.now.to_f
    end

    # --- What must hold whenever it acts

    def violations(cluster, decision)
      worker = cluster.workers.find { |one| one.pid == decision.worker.pid }
      return ["a process that is gone"] unless worker

      { "there is no limit" => cluster.trace.limit.nil?,
        "another worker boots or stops" => !cluster.workers.all?(&:serving?),
        "readings are missing" => unsettled?(cluster),
        **(decision.action == :restart ? of_restart(cluster, worker) : {}) }.select { |_rule, broken| broken }.keys
    end

    def unsettled?(cluster)
      cluster.now - @unbroken_since < (hard?(cluster) ? PERIOD : @policy.sustained_seconds)
    end

    def of_restart(cluster, worker)
      least = hard?(cluster) ? @policy.hard_interval_seconds : @policy.interval_seconds
      { "no supervisor" => cluster.trace.supervisor.nil?,
        "exempt" => exempt(cluster.trace, worker),
        "too young" => worker.uptime(cluster.now) < least_uptime(cluster),
        "too soon" => restarts.any? && cluster.now - restarts.last[:seconds] < least,
        "the last did not help" => restarts.any? { |one| useless?(one, cluster.now) },
        "boots have failed" => boots_fail?(cluster.now) }
    end

    def least_uptime(cluster) = hard?(cluster) ? @policy.hard_min_uptime_seconds : @policy.min_uptime_seconds

    def boots_fail?(now)
      last = restarts.last(2)
      last.sum { |one| one[:failed_boots] } >= @policy.failed_boots &&
        now - (last.last[:booted_seconds] || now) < @policy.min_uptime_seconds
    end

    def useless?(outcome, now)
      returned, expected, since = outcome.values_at(:returned_bytes, :expected_bytes, :seconds)
      returned && 2 * returned < expected && now - since < @policy.stop_seconds
    end

    def hard?(cluster) = cluster.working_set > @policy.hard * cluster.trace.limit

    # --- What it sees

    def restarts = @outcomes.select { |one| one[:action] == :restart }

    def group(cluster)
      trace = cluster.trace
      Memscope::Policy::Group.capture(
        { seconds: clock(cluster.now), host: "web-1", limit_bytes: trace.limit && bytes(trace.limit),
          working_set_bytes: bytes(cluster.working_set), supervised: !trace.supervisor.nil?, workers: trace.count,
          members: cluster.workers.map { |worker| member(worker, cluster) }, outcomes: outcomes(cluster.now) }
      )
    end

    # Those of the last hours, and the last two restarts.
    def outcomes(now)
      kept = restarts.last(2)
      @outcomes.select! { |one| now - one[:seconds] < @policy.stop_seconds || kept.include?(one) }
      @outcomes.map do |one|
        times = one.slice(:seconds, :booted_seconds).transform_values { |seconds| seconds && clock(seconds) }
        { **one.except(:boots), **times }
      end
    end

    # A clock that goes on while the machine is suspended: as if all that was before what is now known.
    def clock(seconds) = (seconds + @suspended).to_f

    def member(worker, cluster)
      { index: worker.index, pid: worker.pid, started_seconds: clock(worker.started), booted: worker.serving?,
        private_bytes: bytes(worker.private), leak_bytes_per_hour: leak(worker, cluster)&.then { |rate| bytes(rate) },
        purge_bytes: bytes(predicted(0.8 * worker.free)), exempt: exempt(cluster.trace, worker) }
    end

    def exempt(trace, worker) = ("the others are forked from it" if trace.fork_worker && worker.index.zero?)

    def predicted(amount) = amount * (0.8 + (0.4 * @noise.rand))

    # The growth that Memscope.verdict would call a leak: after three hours at the earliest. nil if none.
    def leak(worker, cluster)
      rate = cluster.trace.leak(worker.index) / 2
      hours = worker.uptime(cluster.now) / 3600.0
      rate * (0.85 + (0.3 * @noise.rand)) if hours >= 3 && rate > 40 / hours
    end

    def bytes(mebibytes) = (mebibytes * MEBIBYTE).round
  end

  ALL = { "memscope" => -> { Policy.new }, "puma_worker_killer" => -> { WorkerKiller.new },
          "the same, sharing added" => -> { WorkerKiller.new(sharing_added: true) },
          "rolling, 12 hours" => -> { Rolling.new }, "GitLab's watchdog" => -> { Watchdog.new },
          "none" => -> { None.new } }.freeze
end
