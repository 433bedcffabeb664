# frozen_string_literal: true

require_relative "../arenas"
require_relative "../ledger"
require_relative "../process_memory"
require_relative "../snapshot"
require_relative "../ttl_cache"
require_relative "trend"

module Memscope
  class Workers < Reading
    # Takes readings of this process, beginning with one of what it was at boot. Loads nothing of Rails and none of the
    # application's gems, so that it can be used before they are there.
    #
    # @api private
    class Sampler
      # Those of its readings whose absence the kernel explains.
      EXPLAINED = %i[rss_bytes pss_bytes uss_bytes].freeze

      private_constant :EXPLAINED

      # @param role [Symbol] :master, :worker or :single
      # @param index [Integer, nil] of a worker
      def initialize(role:, index: nil)
        @role = role
        @index = index
        @trend = Trend.new
        @arenas = TtlCache.new
        memory = ProcessMemory.read
        @booted_at = now
        @rss_at_boot = memory.rss_bytes
        @inherited = memory.shared_dirty_bytes if role == :worker
      end

      # Counts from now on what is unshared: this process has forked a worker, with which it shares all it has.
      #
      # @return [void]
      def rebase
        @inherited = ProcessMemory.read.shared_dirty_bytes if @role == :worker
      end

      # @return [Worker] as it is now. T2: milliseconds for each GB that is resident
      def read
        ledger = Ledger.read
        memory = ProcessMemory.read
        snapshot = Snapshot.read
        @trend.add(Process.clock_gettime(Process::CLOCK_MONOTONIC), memory.rss_bytes) if memory.rss_bytes
        Worker.capture({ index: @index, pid: Process.pid, role: @role, phase: nil, booted_at: @booted_at, at: now,
                         rss_at_boot_bytes: @rss_at_boot, rss_bytes_per_hour: @trend.per_hour, samples: @trend.samples,
                         reasons: reasons(ledger, memory), snapshot: snapshot, **sizes(memory), **rows(ledger),
                         **arenas_and_costs(ledger.allocator.name,
                                            { ledger: ledger, process_memory: memory, snapshot: snapshot }) })
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)

      def rows(ledger)
        return {} unless ledger.known?

        { rows: ledger.rows.to_h { |row| [row.id, row.bytes] }, leaves: ledger.leaf_bytes,
          unverified_rows: ledger.unverified_rows }
      end

      def arenas_and_costs(allocator, readings)
        arenas = arenas(allocator)
        costs = { **readings, arenas: arenas }.compact.transform_values { |one| one.cost.to_h.slice(:wall_us, :gvl_us) }
        { arenas: arenas&.levels, costs: costs }
      end

      # Under glibc they cost more than a report may, so the configuration limits how often they are read.
      def arenas(allocator)
        return unless Workers.setting(:metrics_arenas)
        return Arenas.read if allocator == :jemalloc

        interval = Workers.setting(:metrics_ledger_interval_seconds)
        @arenas.fetch(interval) { Arenas.read } if interval
      end

      def sizes(memory)
        rss = memory.rss_bytes
        uss = memory.uss_bytes
        { rss_bytes: rss, pss_bytes: memory.pss_bytes, uss_bytes: uss, shared_bytes: rss && uss && (rss - uss),
          unshared_since_fork_bytes: unshared(memory) }
      end

      # Anonymous pages that are shared are dirty: nothing but a fork shares them. What was shared and no longer is, was
      # copied and is private now, or was given back.
      def unshared(memory)
        shared = memory.shared_dirty_bytes
        own = memory.private_dirty_bytes
        (@inherited - shared).clamp(0, own) if @inherited && shared && own
      end

      def reasons(ledger, memory)
        reasons = memory.reasons.slice(*EXPLAINED)
        reasons[:rows] = ledger.reasons[:rss_bytes] || "no ledger could be read" unless ledger.known?
        reasons[:unshared_since_fork_bytes] = why_not_unshared(memory) unless @inherited && memory.shared_dirty_bytes
        reasons[:rss_bytes_per_hour] = "takes 5 readings over a minute" unless @trend.per_hour
        reasons
      end

      def why_not_unshared(memory)
        return "this process is no worker that was forked" unless @role == :worker

        memory.reasons[:shared_dirty_bytes] || "what it shared at boot is not known"
      end
    end
  end
end
