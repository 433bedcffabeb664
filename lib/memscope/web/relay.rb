# frozen_string_literal: true

require_relative "../client"
require_relative "../purge"
require_relative "refusal"

module Memscope
  module Web
    # Which processes a request reaches, and purging them: the workers of the cluster that this process is of, each
    # asked over its own socket, one after the other so that not all stand still at once. Where there is no cluster, or
    # nothing is known of it, this process.
    #
    # @api private
    class Relay
      # Seconds, for all of the others together.
      PATIENCE = 30.0
      # Of that, what each has at least, as long as it lasts.
      LEAST = 1 / 6r
      ALL = "all"
      private_constant :PATIENCE, :LEAST, :ALL

      # @param workers [Array<Worker>] of the cluster; none where there is no cluster
      # @param seconds [Float] in which the others must have answered
      def initialize(workers = self.class.workers, seconds: PATIENCE)
        @workers = workers
        @seconds = seconds
      end

      # A reading where no plugin has found this process a place would be one of itself, and costs a ledger.
      #
      # @yieldreturn [Workers]
      # @return [Array<Worker>] without their master: what it holds is what they share
      def self.workers
        return [] unless Memscope::Workers.current

        (block_given? ? yield : Memscope.workers).select { |worker| worker.role == :worker }
      end

      # @param levers [Array<Symbol>] none for all
      # @param dry_run [Boolean]
      # @param worker [String, nil] the index of one, or "all"; nil for all
      # @return [Purge::Result, Purge::WorkerResults] the second where there are several
      # @raise [Refusal] for another worker, or where the only one did not answer
      # @raise [ArgumentError, Purge::Busy] as Memscope.purge, of this process
      def purge(levers, dry_run:, worker: nil)
        chosen = choose(worker)
        return Memscope.purge(*levers, dry_run: dry_run) if chosen.empty? || chosen.map(&:pid) == [Process.pid]
        return only(chosen.first, levers, dry_run) if chosen.one?

        every(chosen, levers, dry_run)
      end

      # @param given [String, nil] the index of a worker, or "all"; nil for all
      # @param all [Boolean] whether "all" will do where there are several
      # @return [Array<Worker>] none for this process, where there is no cluster
      # @raise [Refusal] for another worker
      def choose(given, all: true)
        all ||= @workers.empty?
        return @workers if given.nil? || (all && given == ALL)

        found = @workers.select { |worker| worker.index.to_s == given }.max_by { |worker| worker.booted_at.to_f }
        return [found] if found

        allowed = [*@workers.map(&:index).uniq, *(ALL if all)].join(", ")
        raise Refusal.new(400, "worker: given #{given[0, 20].inspect}, allowed: #{allowed}.")
      end

      # Asks one after the other.
      #
      # @param workers [Array<Worker>]
      # @yieldparam worker [Worker]
      # @yieldparam seconds [Float] that it has; one that does not answer leaves the others their time
      # @return [Array] what the block returned
      def in_turn(workers)
        since = now
        workers.map.with_index do |worker, index|
          yield(worker, share(since + @seconds - now, workers.size - index))
        end
      end

      # @param worker [Worker] another process
      # @param seconds [Float]
      # @return [Object] what Client#call returns
      # @raise [Client::Unreachable, Client::Failed]
      def call(worker, seconds, name, **options)
        raise Client::Failed, "the time was over before it could be asked" unless seconds.positive?

        Client.new(worker.pid, timeout: seconds).call(name, **options)
      end

      private

      def only(worker, levers, dry_run)
        Client.new(worker.pid, timeout: @seconds).call(:purge, levers: levers, dry_run: dry_run)
      rescue Client::Unreachable, Client::Failed => e
        raise Refusal.new(502, "Worker #{worker.index} gave nothing back: #{e.message}.")
      end

      def every(workers, levers, dry_run)
        since = now
        parts = in_turn(workers) { |worker, seconds| part(worker, levers, dry_run, seconds) }
        results = parts.filter_map { |one| one[:result] }
        returned = results.filter_map(&:returned_bytes)
        Purge::WorkerResults.capture({ dry_run: dry_run, returned_bytes: (returned.sum if returned.any?),
                                       workers: parts, reasons: {}, cost: cost(results, now - since) })
      end

      # While others purge, this process waits without the GVL.
      def cost(results, seconds)
        own = results.find { |result| result.pid == Process.pid }&.cost
        { tier: :T3, wall_us: (seconds * 1_000_000).to_i, gvl_us: own&.gvl_us || 0,
          scratch_bytes: own&.scratch_bytes || 0 }
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def share(left, waiting) = [left / waiting, @seconds * LEAST].max.clamp(0, [left, 0].max)

      # What one fails by does not hide what the others gave.
      def part(worker, levers, dry_run, seconds)
        { index: worker.index, pid: worker.pid, result: result(worker, levers, dry_run, seconds), reason: nil }
      rescue Client::Unreachable, Client::Failed, Purge::Busy, ArgumentError => e
        { index: worker.index, pid: worker.pid, result: nil, reason: e.message }
      end

      def result(worker, levers, dry_run, seconds)
        return Memscope.purge(*levers, dry_run: dry_run) if worker.pid == Process.pid

        call(worker, seconds, :purge, levers: levers, dry_run: dry_run)
      end
    end
  end
end
