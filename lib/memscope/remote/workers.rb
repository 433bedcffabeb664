# frozen_string_literal: true

require_relative "../value/collection"
require_relative "../value/runtime"
require_relative "../process/snapshot"
Memscope::Loading.units :History, :Tags, :Verdict, :Configuration

module Memscope
  # One process of a server, as it last reported itself: a worker or the master of a cluster, or the only process of a
  # server without a cluster.
  #
  # rss_bytes is the sum of uss_bytes and shared_bytes. The rows come from a ledger that was read just before, and sum
  # to ledger_rss_bytes, which differs from rss_bytes by some pages.
  class Worker < Record
    # @return [Integer, nil] Puma's number of the worker; nil for the master, and in a process that is no worker
    field :index, :count
    # @return [Integer]
    field :pid, :count, null: false
    # @return [Symbol] :master, :worker, or :single for a process without a cluster
    field :role, :symbol, null: false, one_of: %i[master worker single]
    # @return [Integer, nil] Puma's phase, which each phased restart increases; nil until Puma reports it
    field :phase, :count, sparse: true
    # @return [Time, nil] time of its first reading, in UTC, to the millisecond: before the application was loaded or,
    #   in a worker of a preloaded application, right after the fork
    field :booted_at, :time
    # @return [Time, nil] time of these numbers, in UTC, to the millisecond; nil before the first report
    field :at, :time
    # @return [Integer, nil] RSS, which counts shared pages in full
    field :rss_bytes, :bytes
    # @return [Integer, nil] PSS: each resident page divided by the number of processes that map it, so that it can be
    #   summed over processes
    field :pss_bytes, :bytes
    # @return [Integer, nil] USS: pages that only this process maps, and that are freed when it exits
    field :uss_bytes, :bytes
    # @return [Integer, nil] pages that another process maps too: libraries, and copy-on-write pages still shared
    field :shared_bytes, :bytes
    # @return [Integer, nil] memory that was shared with other processes when the worker booted, right after the fork,
    #   and is private now, because one of the processes wrote to it, or because pinning it (process_vm_readv, io_uring)
    #   copied it. nil for a process that was not forked, or if the kernel hides which pages are shared
    field :unshared_since_fork_bytes, :bytes
    # @return [Integer, nil] RSS at `booted_at`
    field :rss_at_boot_bytes, :bytes

    # @return [Hash{Symbol => Integer}, nil] top rows of the ledger: resident bytes by row
    field :rows, :sizes
    # @return [Hash{Symbol => Integer}, nil] leaf rows of the ledger: resident bytes by path (:"malloc/in_use"), with
    #   the same sum as `rows`
    field :leaves, :sizes
    # @return [Integer, nil] number of the ledger's rows that another source contradicts
    field :unverified_rows, :count
    # @return [Snapshot, nil] the snapshot in the same report; nil before the first report
    field :snapshot, Snapshot, sparse: true
    # @return [Hash{Symbol => Hash{Integer => Integer}}, nil] Arena::LEVELS for the metrics, each by arena index; nil
    #   unless the configuration's `metrics_arenas` is true
    field :arenas, :tables, sparse: true
    # @return [Array<Tags::Row>, nil] the first rows of Memscope.tags, and the sum of the others as "[other]"; at most a
    #   minute old; nil before the first tag
    field :tags, [Tags::Row], sparse: true
    # @return [Hash{Symbol => Hash{Symbol => Integer}}, nil] wall_us and gvl_us of each reading in the report
    field :costs, :tables
    # @return [Verdict, nil] the last verdict on the process's history; nil before the first verdict, or if the process
    #   keeps no history
    field :verdict, Verdict, sparse: true
    # @return [Integer, nil] what a purge would return at least; under glibc, as of the history's last reading
    field :purge_bytes, :bytes, sparse: true
    # @return [Hash{Symbol => Hash{Symbol => Integer}}, nil] for each action, how many of the policy's decisions for it
    #   were executed, and how many were not: {restart: {executed: 2}}; nil unless this process follows the policy
    field :policy_decisions, :tables, sparse: true
    # @return [String, nil] what the policy last decided, and why: a sentence; nil unless this process follows the
    #   policy
    field :policy_decision, :string, sparse: true
    # @return [Integer] number of readings of this process
    field :samples, :count, null: false
    # @return [Hash{Symbol => String}] why a value is nil, or old
    field :reasons, :sentences, null: false

    # @api private
    # @return [Symbol] the field by which a Diff pairs two Workers
    def self.identity = :pid

    # @return [Integer, nil] RSS of the ledger, which is the sum of its rows
    def ledger_rss_bytes = rows&.values&.sum

    # @api private
    # @return [Worker] a copy with other values for some fields
    def with(**changes) = self.class.capture({ **values, **changes })
  end

  # Every process of this server: the master of Puma's cluster first, then the workers by index.
  #
  # In the master, the reading has each process's last report; in a worker, it is the master's answer; elsewhere, it has
  # only the process itself, with a reason. Reports come from `plugin :memscope` in config/puma.rb.
  #
  #   Memscope.workers.pss_bytes                           # => 402653184, summed over all processes
  #   Memscope.workers[1].unshared_since_fork_bytes        # => 67108864
  #   Memscope.workers.max_by(&:uss_bytes).rows[:malloc]   # => 81540864
  class Workers < Reading
    # @return [Array<Worker>] the master first, then by index; while Puma restarts, an old and a new worker can have the
    #   same index
    collection :workers, [Worker]

    class << self
      # @api private
      # @return [Workers]
      def read = (current || Workers::Watch.new(Workers::Sampler.new(role: :single))).read

      # Makes this process take a reading of itself every `worker_interval_seconds`, so that `Memscope.workers` and
      # the history know it: for a process that is not a Puma worker, such as Sidekiq's. Starts one thread, which
      # sleeps between readings, or starts it again if it was killed; a forked child does not inherit the thread and has
      # to call this method itself.
      #
      # @return [void]
      def watch = watch_with(nil)

      # @api private
      # @param log [#log, nil] where the policy's lines go without a logger
      # @return [void]
      def watch_with(log)
        History.start if setting(:history)
        return current.resume if current

        controller = Controller.new(SingleHost.new(log))
        self.current = Watch.new(Sampler.new(role: :single), controller: controller).tap(&:start)
        nil
      end

      # @api private
      # @return [Worker, nil] this process's last report on itself; nil if it does not take readings of itself at
      #   intervals
      def own = current&.own

      # @api private
      # @return [Watch, Cluster, nil] the object that takes this process's readings; nil if nothing was started, as in a
      #   process that a worker forked
      def current = Runtime.current.workers

      # @api private
      # @param host [Watch, Cluster, nil]
      def current=(host)
        Runtime.current.workers = host
      end

      # Lets the policy do what is due: in the thread that listens, if there is one, since it waits for what it does.
      #
      # @api private
      # @param controller [Controller]
      # @return [void]
      def follow(controller)
        listener = Listener.current unless Memscope.autoload?(:Listener)
        listener ? listener.soon(controller) : controller.step
      end

      # A setting as configured so far: an application that is not loaded yet may change it.
      #
      # @api private
      # @param name [Symbol]
      # @return [Object] the setting's value, or its `safe` value if its environment variable is invalid
      def setting(name)
        Configuration.setting(name)
      rescue ArgumentError
        Configuration::SETTINGS.fetch(name).safe
      end

      # @api private
      # @param workers [Array<Worker>]
      # @param reasons [Hash{Symbol => String}]
      # @param since [Integer] Cost.now when the call began
      # @return [Workers]
      def of(workers, since:, reasons: {}, tier: :T0)
        capture({ workers: workers, reasons: reasons, cost: Cost.of(tier, Cost.now - since) })
      end
    end

    # @param index [Integer] Puma's number of a worker
    # @return [Worker, nil] the worker of this index; if there are two, the one that booted last
    def [](index) = workers.select { |worker| worker.index == index }.max_by { |worker| worker.booted_at.to_f }

    # @return [Integer, nil] PSS summed over all processes, in which a page that they share counts once; nil if the PSS
    #   of any process is unknown
    def pss_bytes = total(&:pss_bytes)

    # @return [Integer, nil] USS summed over all processes: memory private to one of them; nil if the USS of any process
    #   is unknown
    def uss_bytes = total(&:uss_bytes)

    # @api private
    # @return [Boolean] whether anything could be read
    def known? = any?(&:rss_bytes)

    private

    def total(&)
      all = workers.map(&)
      all.sum unless all.include?(nil)
    end
  end
end

require_relative "workers/controller"
require_relative "workers/sampler"
require_relative "workers/single_host"
require_relative "workers/watch"
