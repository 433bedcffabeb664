# frozen_string_literal: true

require_relative "native"
require_relative "reading"
require_relative "snapshot"
require_relative "configuration"

module Memscope
  # One process of a server, as it last reported itself: a worker, their master, or a process that has neither.
  #
  # rss_bytes is uss_bytes and shared_bytes together. The rows are of a ledger read just before, and sum to
  # ledger_rss_bytes: some pages more or less.
  class Worker < Record
    # @return [Integer, nil] Puma's number of the worker; nil for the master, and in a process that is no worker
    field :index, :count
    # @return [Integer]
    field :pid, :count, null: false
    # @return [Symbol] :master, :worker, or :single for a process that has no cluster around it
    field :role, :symbol, null: false, one_of: %i[master worker single]
    # @return [Integer, nil] Puma's phase, which each phased restart increases; nil before Puma's first word of it
    field :phase, :count
    # @return [Time, nil] UTC, to the millisecond, when it took its first reading: before the application was loaded,
    #   or in a worker of a preloaded one just behind the fork
    field :booted_at, :time
    # @return [Time, nil] UTC, to the millisecond, when these numbers were read; nil before the first report
    field :at, :time
    # @return [Integer, nil] resident, shared pages in full
    field :rss_bytes, :bytes
    # @return [Integer, nil] each resident page divided by the number of processes that map it: these sum over the
    #   processes
    field :pss_bytes, :bytes
    # @return [Integer, nil] pages that this process alone maps: what would go back with it
    field :uss_bytes, :bytes
    # @return [Integer, nil] pages that another process maps too: libraries, and what copy-on-write still shares
    field :shared_bytes, :bytes
    # @return [Integer, nil] of the memory that it shared with its parent just behind the fork, what is no longer
    #   shared, whoever of them wrote to it; nil for a process that was not forked
    field :unshared_since_fork_bytes, :bytes
    # @return [Integer, nil] RSS at `booted_at`
    field :rss_at_boot_bytes, :bytes
    # @return [Hash{Symbol => Integer}, nil] the ledger's top rows: resident bytes by row
    field :rows, :hash
    # @return [Hash{Symbol => Integer}, nil] the rows without children of that ledger, by their paths
    #   (:"malloc/in_use"): resident bytes, with the same sum
    field :leaves, :hash
    # @return [Integer, nil] how many rows of that ledger another source contradicts
    field :unverified_rows, :count
    # @return [Snapshot, nil] the totals that are cheap to read, read in the same report; nil before the first one
    field :snapshot, Snapshot, sparse: true
    # @return [Hash{Symbol => Hash{Integer => Integer}}, nil] what metrics tell of its arenas: levels, each by the
    #   arenas' indices; nil unless the configuration's `metrics_arenas` is true
    field :arenas, :hash, sparse: true
    # @return [Hash{Symbol => Hash{Symbol => Integer}}, nil] of each reading that the report took: wall_us and gvl_us
    field :costs, :hash
    # @return [Integer, nil] how RSS grew since boot: the median of the slopes between readings, which a start that
    #   fills caches does not tilt for long; nil before 5 readings over a minute
    field :rss_bytes_per_hour, :signed_bytes
    # @return [Integer] how many readings it took of itself
    field :samples, :count, null: false
    # @return [Hash{Symbol => String}] why something is nil, or old
    field :reasons, :sentences, null: false

    # Both are made when they are asked for.
    remove_method :at, :booted_at

    # @api private
    # @return [Symbol] by which field a Diff pairs two of them
    def self.identity = :pid

    def at = time(:at)

    def booted_at = time(:booted_at)

    # @return [Integer, nil] RSS of the ledger that the rows are of, which is their sum
    def ledger_rss_bytes = rows&.values&.sum

    # @return [Hash{Symbol => Object}] all fields, ready for JSON
    def to_h = { **super, booted_at: text(booted_at), at: text(at) }

    # @api private
    # @return [Worker] with other values for some fields
    def with(**changes) = self.class.capture({ **values, **changes })

    private

    def time(name) = values[name] && Time.at(0, values[name], :millisecond).utc.freeze

    def text(time) = time&.strftime("%Y-%m-%dT%H:%M:%S.%LZ")
  end

  # Every process of the server that this process is of: the master of Puma's cluster first, then the workers by index.
  #
  # In the master, what each last reported; in a worker, what the master says; elsewhere only the process itself, and
  # the reasons say so. Reports come from `plugin :memscope` in config/puma.rb.
  #
  #   Memscope.workers.pss_bytes                           # => 402653184, of all of them
  #   Memscope.workers[1].unshared_since_fork_bytes        # => 67108864
  #   Memscope.workers.max_by(&:uss_bytes).rows[:malloc]   # => 81540864
  class Workers < Reading
    # @return [Array<Worker>] the master first, then by index; of one index an old and a new one while Puma restarts
    collection :workers, [Worker]

    class << self
      # @api private
      # @return [Workers]
      def read = (current || Workers::Watch.new(Workers::Sampler.new(role: :single))).read

      # Lets this process take readings of itself each `worker_interval_seconds`, so that `Memscope.workers` knows how
      # it grows: for a process that is no worker of Puma's, as Sidekiq's. One thread, asleep in between. Again in a
      # forked child, which has none.
      #
      # @return [void]
      def watch
        return if current

        self.current = Workers::Watch.new(Workers::Sampler.new(role: :single)).tap(&:start)
        nil
      end

      # @api private
      # @return [#read, nil] what knows this process's place among the others; nil where nothing was started, as in a
      #   child that a worker forked
      def current = (@current if @current && @current.pid == Process.pid)

      # @api private
      attr_writer :current

      # What is configured so far: an application that is still to be loaded may configure yet.
      #
      # @api private
      # @param name [Symbol]
      # @return [Object] what is safe where the environment says what cannot be
      def setting(name)
        Configuration.so_far.public_send(name)
      rescue ArgumentError
        Configuration::SETTINGS.fetch(name).safe
      end

      # @api private
      # @param workers [Array<Worker>]
      # @param reasons [Hash{Symbol => String}]
      # @param since [Float] when the call began, in seconds of the monotonic clock
      # @return [Workers]
      def of(workers, since:, reasons: {}, tier: :T0)
        wall_us = ((Process.clock_gettime(Process::CLOCK_MONOTONIC) - since) * 1_000_000).to_i
        capture({ workers: workers, reasons: reasons,
                  cost: { tier: tier, wall_us: wall_us, gvl_us: wall_us, scratch_bytes: 0 } })
      end
    end

    # @param index [Integer] Puma's number of a worker
    # @return [Worker, nil] the one that booted last, where there are two of the index
    def [](index) = workers.select { |worker| worker.index == index }.max_by { |worker| worker.booted_at.to_f }

    # @return [Integer, nil] what all of them use of the machine: PSS counts a shared page once; nil where it is not
    #   known of one
    def pss_bytes = total(&:pss_bytes)

    # @return [Integer, nil] of that, what is private to one of them
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

require_relative "workers/sampler"
require_relative "workers/watch"
