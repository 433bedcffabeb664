# frozen_string_literal: true

module Memscope
  class Workers < Reading
    # Makes the reports of this process on itself, the first when the process boots. Loads nothing of Rails and none of
    # the application's gems, so that it can be used before they are loaded.
    # @api private
    class Reporter
      # The values for which ProcessMemory gives a reason if they are missing.
      EXPLAINED = %i[rss_bytes pss_bytes uss_bytes].freeze

      # `role` is :master, :worker or :single. `index` is Puma's number of the worker.
      def initialize(role:, index: nil)
        @role = role
        @index = index
        @samples = 0
        @arenas = TtlCache.new
        @tags = TtlCache.new
        @booted_at = Clock.time
        @rss_at_boot = ProcessMemory.read.rss_bytes
        rebase
      end

      # Restarts the count of unshared memory: this process has forked a worker, and now shares all its memory with it.
      def rebase
        @inherited = Native.inherited if @role == :worker
      end

      # This process as it is now. T2: milliseconds per resident GB.
      def read
        ledger = Ledger.read_between_collections
        memory = ProcessMemory.read
        snapshot = Snapshot.read
        unshared = unshared()
        interval = Configuration.effective(:metrics_ledger_interval_seconds)
        arenas = Arenas.read_for_metrics(@arenas, interval) if Configuration.effective(:metrics_arenas)
        tags = Tags.read_for_metrics(@tags, interval) if Native.tags_begun?
        runtime = Runtime.current
        runtime.history&.offer(ledger, memory)
        @samples += 1
        Worker.capture({ index: @index, pid: Process.pid, role: @role, booted_at: @booted_at, at: Clock.time,
                         rss_at_boot_bytes: @rss_at_boot, samples: @samples,
                         verdict: runtime.verdict, reasons: reasons(ledger, memory, unshared),
                         snapshot: snapshot, **sizes(memory, unshared), **rows(ledger), arenas: arenas&.levels,
                         tags: tags&.rows, costs: costs(ledger, memory, snapshot, arenas, tags) })
      end

      private

      # Bytes, or why they are unknown.
      def unshared = @inherited.is_a?(String) ? Native.unshared(@inherited) : @inherited

      def rows(ledger)
        return {} unless ledger.known?

        { rows: ledger.rows.to_h { |row| [row.id, row.bytes] }, leaves: ledger.leaf_bytes,
          unverified_rows: ledger.unverified_rows,
          purge_bytes: Purge.least_bytes(ledger) || Runtime.current.history&.trimmable_bytes }
      end

      def costs(*readings)
        readings.compact.to_h do |reading|
          cost = reading.cost
          [reading.kind.to_sym, { wall_us: cost.wall_us, gvl_us: cost.gvl_us }]
        end
      end

      def sizes(memory, unshared)
        rss = memory.rss_bytes
        uss = memory.uss_bytes
        { rss_bytes: rss, pss_bytes: memory.pss_bytes, uss_bytes: uss, shared_bytes: rss && uss && (rss - uss),
          unshared_since_fork_bytes: (unshared if unshared.is_a?(Integer)) }
      end

      def reasons(ledger, memory, unshared)
        reasons = memory.reasons.slice(*EXPLAINED)
        reasons[:rows] = ledger.reasons[:rss_bytes] || Reasons.sentence(:no_ledger) unless ledger.known?
        reasons[:unshared_since_fork_bytes] = Reasons.sentence(unshared || :not_forked) unless unshared.is_a?(Integer)
        reasons
      end
    end
  end
end
