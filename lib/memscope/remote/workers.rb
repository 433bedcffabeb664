# frozen_string_literal: true

require_relative "worker"
Memscope::Loading.units :BlackBox, :Client, :History, :Policy, :Purge, :TtlCache

module Memscope
  Record.declare(__FILE__)

  # Every process of this server: the master of Puma's cluster first, then the workers by index.
  #
  # In the master, the reading has each process's last report. In a worker, it is the master's answer. Elsewhere, it has
  # only the process itself, with a reason. Reports come from `plugin :memscope` in config/puma.rb.
  #
  #   Memscope.workers.pss_bytes                           # => 402653184, summed over all processes
  #   Memscope.workers[1].unshared_since_fork_bytes        # => 67108864
  #   Memscope.workers.max_by(&:uss_bytes).rows[:malloc]   # => 81540864
  class Workers < Reading
    include Collection

    # @api private
    def self.read = (current || Watch.new(Reporter.new(role: :single))).read(self)

    # Makes this process take a reading of itself every `worker_interval_seconds`, so that `Memscope.workers` and
    # the history know it: for a process that is not a Puma worker, such as Sidekiq's. Starts one thread, which
    # sleeps between readings, or starts it again if it was killed. A forked child does not inherit the thread and has
    # to call this method itself.
    #
    # @param log [#log, nil] where the policy's lines go without a logger
    # @return [void]
    def self.watch(log = nil)
      History.start if Configuration.effective(:history)
      BlackBox.start(role: log ? "puma" : BlackBox::Identity.role) { !log || serves? } if Runtime.current.black_box.nil?
      return current.resume if current

      watch = Watch.new(Reporter.new(role: :single), controller: Controller.new(SingleHost.new, log))
      Runtime.current.workers = watch.tap(&:start)
      nil
    end

    # @api private
    # @return [Boolean] whether this process has a server of Puma, which begins once the application has booted
    def self.serves? = Thread.list.any? { |thread| thread.name&.start_with?("puma srv") }

    # @api private
    # @return [Watch, Cluster, nil] the object that takes this process's readings. nil if nothing was started, as in a
    #   process that a worker forked
    def self.current = Runtime.current.workers

    # @api private
    def self.of(workers, since:, reasons: {}, tier: :T0)
      capture({ workers: workers, reasons: reasons, cost: Cost.of(tier, Cost.now - since) })
    end

    # @param index [Integer] Puma's number of a worker
    # @return [Worker, nil] the worker of this index or, if there are two, the one that booted last
    def [](index) = workers.select { |worker| worker.index == index }.max_by { |worker| worker.booted_at.to_f }

    # @return [Integer, nil] PSS summed over all processes, in which a page that they share counts once. nil if the PSS
    #   of any process is unknown
    def pss_bytes = total(&:pss_bytes)

    # @return [Integer, nil] USS summed over all processes: memory private to one of them. nil if the USS of any process
    #   is unknown
    def uss_bytes = total(&:uss_bytes)

    # @api private
    def known? = any?(&:rss_bytes)

    private

    def total(&)
      all = workers.map(&)
      all.sum unless all.include?(nil)
    end
  end
end

%w[controller reporter single_host watch].each { |part| require_relative "workers/#{part}" }
