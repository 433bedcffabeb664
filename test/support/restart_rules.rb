# frozen_string_literal: true

require_relative "worker_cluster"

# Rules that restart the workers of a WorkerCluster. `step` is called at each step, `lost` when all processes were lost.
module RestartRules
  # Nothing is ever restarted.
  class None
    def step(_cluster) = nil
    def lost(_cluster) = nil
  end

  # puma_worker_killer, as its README documents it: every 5 seconds, if the RSS of master and workers sums to more than
  # 99 % of the memory that it was told of, the largest worker is terminated. One that boots or stops is left alone.
  class SumOfRss < None
    # The configured memory, in MiB, where the container has no limit.
    MACHINE = 16_384

    # @param sharing_added [Boolean] whether the limit is raised by the memory that the sum counts more than once
    def initialize(sharing_added: false)
      super()
      @sharing_added = sharing_added
    end

    def step(cluster)
      trace = cluster.trace
      memory = (trace.limit || MACHINE) + (@sharing_added ? trace.shared * trace.count : 0)
      return unless trace.master + trace.shared + cluster.workers.sum(&:rss) > 0.99 * memory

      largest = cluster.workers.select(&:serving?).max_by(&:rss)
      cluster.terminate(largest) if largest
    end
  end

  # puma_worker_killer's rolling restart: every 12 hours, one worker after the other is terminated, a minute apart.
  class Rolling < None
    PERIOD = 12 * 3600
    APART = 60

    def step(cluster)
      passed = cluster.now % PERIOD
      return unless cluster.now >= PERIOD && (passed % APART).zero?

      worker = cluster.workers[passed / APART]
      cluster.terminate(worker) if worker&.serving?
    end
  end

  # puma_worker_killer with both rules, as its `start` runs them.
  class WorkerKiller < SumOfRss
    def initialize(...)
      super
      @rolling = Rolling.new
    end

    def step(cluster)
      super
      @rolling.step(cluster)
    end
  end

  # GitLab's watchdog, as its documentation describes it: a thread of each worker looks every 60 seconds. At the fifth
  # strike in a row above its limit of RSS, the worker terminates itself. With all workers at the limit, the container
  # is 90 % full.
  class Watchdog < None
    PERIOD = 60
    STRIKES = 5

    def initialize
      super
      @strikes = Hash.new(0)
    end

    def step(cluster)
      limit = limit(cluster.trace)
      cluster.workers.each do |worker|
        next unless worker.serving? && (worker.uptime(cluster.now) % PERIOD).zero?

        @strikes[worker.pid] = worker.rss > limit ? @strikes[worker.pid] + 1 : 0
        cluster.terminate(worker) if @strikes[worker.pid] >= STRIKES
      end
    end

    private

    def limit(trace)
      trace.shared + (((0.9 * (trace.limit || SumOfRss::MACHINE)) - trace.master - trace.shared) / trace.count)
    end
  end
end
