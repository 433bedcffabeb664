# frozen_string_literal: true

require_relative "forecast"
require_relative "plan"
require_relative "result"
require_relative "rows"

module Memscope
  module Purge
    # Carries a Plan out: a ledger, and for each lever a forecast, the lever, and a ledger again.
    #
    # @api private
    class Run
      # @param plan [Plan]
      def initialize(plan)
        @plan = plan
        @ledgers = []
        @levers = []
      end

      # @return [Result]
      # @raise [Busy]
      def result
        start = now
        @plan.dry_run? ? predict : Purge.alone { pull_all }
        took = now - start
        Result.capture(body(settled, took))
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)

      def predict
        ledger = read(@plan.levers)
        @levers = @plan.levers.map { |name| lever(name, Forecast.of(name, @plan.arena, ledger, collect: false)) }
      end

      # Trimming is predicted from a deep ledger, and followed by one, so that it is told where the memory came from.
      def pull_all
        [nil, *@plan.levers, nil].each_cons(2) do |name, following|
          pull(name) if name
          read([name, following])
          @levers << finished if name
        end
      end

      def read(levers)
        @ledgers << Memscope.ledger(deep: levers.include?(:trim))
        @ledgers.last
      end

      def pull(name)
        @forecast = Forecast.of(name, @plan.arena, @ledgers.last, collect: true)
        @name = name
        @wall_us, @failure = HOLDING_GVL.include?(name) ? pull_own(name) : pull_allocators(name)
      end

      def pull_own(name)
        start = now
        name == :gc ? GC.start : Compaction.run
        [now - start, nil]
      rescue NotImplementedError => e # the levers were chosen before
        [now - start, e.message]
      end

      def pull_allocators(name)
        wall_ns, failure = Native.pull(name, @plan.arena)
        [wall_ns / 1000, failure]
      end

      def finished
        before, after = @ledgers.last(2)
        lever(@name, @forecast, returned_bytes: fall(before, after), rows: Rows.fall(before, after),
                                wall_ms: @wall_us / 1000.0, reason: @failure || @forecast.reason)
      end

      def lever(name, forecast, **done)
        Lever.capture({ name: name, predicted_bytes: forecast.min_bytes, predicted_max_bytes: forecast.max_bytes,
                        returned_bytes: nil, rows: {}, wall_ms: nil, gvl: HOLDING_GVL.include?(name),
                        reason: forecast.reason, **done })
      end

      def fall(before, after) = before.rss_bytes && after.rss_bytes && (before.rss_bytes - after.rss_bytes)

      # Others may purge meanwhile: nobody is kept from it for as long as somebody waits.
      def settled
        return if @plan.dry_run? || @plan.settle.zero?

        sleep(@plan.settle)
        Memscope.ledger
      end

      def body(settled, took)
        before = @ledgers.first
        after = @ledgers.last unless @plan.dry_run?
        { allocator: before.allocator.name, dry_run: @plan.dry_run?, arena: @plan.arena,
          settle_seconds: settled ? @plan.settle : 0, levers: @levers,
          returned_bytes: (fall(before, after) if after), rows: after ? Rows.fall(before, after) : {},
          before: before, after: after, settled: settled,
          reasons: { **@plan.refused, **before.reasons.slice(:extension, :rss_bytes) },
          cost: cost([*@ledgers, *settled].map(&:cost), took) }
      end

      def cost(ledgers, took)
        held = @levers.select(&:gvl?).sum { |lever| ((lever.wall_ms || 0) * 1000).to_i }
        { tier: :T3, wall_us: took, gvl_us: ledgers.sum(&:gvl_us) + held,
          scratch_bytes: ledgers.map(&:scratch_bytes).max }
      end
    end
    private_constant :Run
  end
end
