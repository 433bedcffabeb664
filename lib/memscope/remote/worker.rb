# frozen_string_literal: true

require_relative "../value/reading"
require_relative "../process/snapshot"
Memscope::Loading.units :Tags, :Verdict

module Memscope
  # One process of a server, as it last reported itself: a worker or the master of a cluster, or the only process of a
  # server without a cluster.
  #
  # rss_bytes is the sum of uss_bytes and shared_bytes. The rows come from a ledger that was read just before, and sum
  # to ledger_rss_bytes, which differs from rss_bytes by some pages.
  class Worker < Record
    # A report begins with index, pid and role: the master goes by them before it parses (Received::HEAD).

    # @return [Integer, nil] Puma's number of the worker; nil for the master, and in a process that is no worker
    field :index, :count
    # @return [Integer]
    field :pid, :count, null: false, identity: true
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

    # The columns of a table of processes, in text and on the page, by field: the heading, and the help of the metric
    # memscope_worker_FIELD (the RSS has another one).
    #
    # @api private
    COLUMNS = {
      rss_bytes: ["RSS"],
      pss_bytes: ["PSS", "Resident memory, with each page divided by the number of processes that map it"],
      uss_bytes: ["USS", "Resident memory that this worker alone maps"],
      shared_bytes: ["shared", "RSS minus USS: memory shared copy-on-write or through files"],
      unshared_since_fork_bytes: ["unshared", "Shared with the master when the worker started, and private now"]
    }.freeze

    # @return [Integer, nil] RSS of the ledger, which is the sum of its rows
    def ledger_rss_bytes = rows&.values&.sum

    # @api private
    # @return [Worker] a copy with other values for some fields
    def with(**changes) = self.class.capture({ **values, **changes })
  end
end
