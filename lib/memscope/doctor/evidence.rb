# frozen_string_literal: true

require_relative "../ledger"
require_relative "../snapshot"
require_relative "../arenas"
require_relative "../ruby_heap"
require_relative "../process_memory"
require_relative "../cgroup"
require_relative "../fragmentation"
require_relative "../lint"
require_relative "garbage"
require_relative "growth"
require_relative "objects"

module Memscope
  class Diagnosis < Reading
    # The readings that a diagnosis rests on, taken one after the other.
    class Evidence < Record
      # @return [Ledger] with `shared: true, garbage: true`
      field :ledger, Ledger, null: false
      # @return [Snapshot]
      field :snapshot, Snapshot, null: false
      # @return [Snapshot, nil] taken a tenth of a second after the first, only if jemalloc holds many freed pages and
      #   no background thread runs: shows whether the process returns pages
      field :second_snapshot, Snapshot, sparse: true
      # @return [Array<Hash{Symbol => Integer}>, nil] for each of jemalloc's arenas: index, threads, allocated_bytes,
      #   dirty_bytes and dirty_decay_ms; nil if jemalloc does not serve malloc
      field :arenas, :list, sparse: true
      # @return [Fragmentation, nil] under jemalloc: memory stuck in slabs, by block size
      field :fragmentation, Fragmentation, sparse: true
      # @return [RubyHeap]
      field :ruby_heap, RubyHeap, null: false
      # @return [ProcessMemory]
      field :process_memory, ProcessMemory, null: false
      # @return [Cgroup]
      field :cgroup, Cgroup, null: false
      # @return [Growth, nil] nil unless the process takes readings of itself at intervals, and has done so for a minute
      field :growth, Growth, sparse: true
      # @return [Objects, nil] nil unless a heap graph, or two censuses, were taken on the process's pages
      field :objects, Objects, sparse: true
      # @return [Garbage, nil] nil if it is unknown what is garbage
      field :garbage, Garbage, sparse: true
      # @return [Lint] the problems of the allocator's settings; also the process's environment
      field :lint, Lint, null: false
      # @return [Hash{Symbol => Object}] the cost of all of these readings together, with the wait between snapshots
      field :total_cost, :cost, null: false

      # A second snapshot is taken MOMENT seconds after the first, if at least MANY bytes are freed pages.
      MANY = 16 * 1_048_576
      MOMENT = 0.1
      OF_ARENAS = %i[index threads allocated_bytes dirty_bytes dirty_decay_ms].freeze
      private_constant :MANY, :MOMENT, :OF_ARENAS

      # Takes all of the readings. Tier T2.
      #
      # @param gc [Boolean] collect garbage first
      # @param worker [Worker, nil] this process's own report on its growth
      # @return [Evidence]
      # @raise [ArgumentError] unless `gc` is true or false
      def self.read(gc: false, worker: nil)
        Diagnosis.check_switch(:gc, gc, call: "doctor")
        began = Cost.now
        lint = Lint.read # first: it reads the process's CPU time, which the other readings increase
        ledger, blocks, heap = Ledger.survey(gc: gc)
        snapshot = Snapshot.read
        arenas, fragmentation = of_jemalloc(heap) if ledger.allocator.name == :jemalloc
        parts = { ledger: ledger, snapshot: snapshot, second_snapshot: second_snapshot(snapshot.jemalloc),
                  fragmentation: fragmentation, ruby_heap: heap, process_memory: ProcessMemory.read,
                  cgroup: Cgroup.read, lint: lint }
        cost = total_cost([*parts.values, arenas].compact, Cost.now - began)
        capture({ **parts, **known(worker, blocks), total_cost: cost,
                                                    arenas: arenas&.map { |arena| arena.to_h.slice(*OF_ARENAS) } })
      end

      def self.known(worker, blocks)
        { growth: Growth.of(worker), objects: Objects.kept, garbage: Garbage.of(blocks) }
      end

      def self.of_jemalloc(heap) = [Arenas.read, Fragmentation.of_jemalloc(*Fragmentation.of_one_epoch, heap)]

      def self.second_snapshot(jemalloc)
        return unless jemalloc && jemalloc[:background_threads]&.zero?
        return unless jemalloc[:pdirty] && jemalloc[:pdirty] * jemalloc[:page_bytes] >= MANY

        sleep(MOMENT)
        Snapshot.read
      end

      # A Fragmentation's cost already includes the RubyHeap's.
      def self.total_cost(readings, wall_us)
        readings = readings.grep_v(RubyHeap) if readings.any?(Fragmentation)
        { **Cost.sum(readings.map(&:cost)), wall_us: wall_us }.freeze
      end
      private_class_method :known, :of_jemalloc, :second_snapshot, :total_cost
    end
  end
end
