# frozen_string_literal: true

module Memscope
  class Diagnosis < Reading
    # The garbage that a collection would free, as found by a mark phase in a forked child.
    class Garbage < Record
      # @api private
      # @return [Garbage, nil] nil if the garbage, or the memory that its collection returns, is unknown
      def self.of(blocks)
        return unless blocks.garbage && blocks.returned

        capture({ objects: blocks.garbage.objects, bytes: blocks.garbage_bytes,
                  returned: blocks.returned, collected: blocks.returned_by_gc })
      end

      # @api private
      # @param forked [Boolean] whether the process may share pages with others
      # @return [Range] bytes that the machine gains; if these are unknown, bytes that the process returns
      def gain(forked: false) = returned.private_range || ((forked ? 0 : returned.bytes)..returned.max_bytes)
    end

    # Who holds objects, and which class grew, according to the heap graph and the censuses that were taken on the
    # process's web pages, or over its socket, and that the process keeps.
    class Objects < Record
      # Loads nothing, so that it works in a trap handler.
      # @api private
      # @return [Objects, nil] nil if nothing is kept
      def self.kept
        kept = Runtime.current.readings
        at, holder = kept[:holder]
        seconds, grown, unsized = kept[:class_growth]
        return unless holder || seconds

        capture({ graph_at: at && (at.to_r * 1000).round, holder: holder,
                  census_seconds: seconds, grown: grown, unsized: unsized })
      end
    end

    # The readings that a diagnosis rests on, taken one after the other.
    class Evidence < Record
      # If freed pages have at least MIN_FREED_BYTES, a second snapshot is taken RESAMPLE_SECONDS after the first.
      MIN_FREED_BYTES = 16 * 1_048_576
      RESAMPLE_SECONDS = 0.1
      PART = 1 << 20
      # The name in a table of symbols.
      MMAP = /\0mmap(?:64)?\0/n
      MAX_SHARED_FILES = 10
      OF_ARENAS = %i[index threads allocated_bytes dirty_bytes dirty_decay_ms].freeze
      private_constant :MIN_FREED_BYTES, :RESAMPLE_SECONDS, :PART, :MMAP, :MAX_SHARED_FILES, :OF_ARENAS

      # Takes all of the readings. Tier T3.
      #
      # @param gc [Boolean] collect garbage first
      # @return [Evidence]
      # @raise [ArgumentError] unless `gc` is true or false
      def self.read(gc: false, native: Native)
        Reading.check_switch(:gc, gc, call: "doctor")
        began = Cost.now
        lint = Lint.read(native: native) # first: it reads the process's CPU time, which the other readings increase
        ledger, blocks, heap = Ledger.survey(gc: gc, native: native)
        snapshot, memory, cgroup = [Snapshot, ProcessMemory, Cgroup].map { |kind| kind.read(native: native) }
        arenas, fragmentation = of_jemalloc(ledger, native)
        parts = { ledger: ledger, snapshot: snapshot, second_snapshot: second_snapshot(snapshot, native),
                  fragmentation: fragmentation, ruby_heap: heap, process_memory: memory, cgroup: cgroup, lint: lint }
        cost = Cost.sum([*parts.values, arenas].compact.map(&:cost))
        capture({ **parts, **known(ledger, blocks, native), total_cost: { **cost, wall_us: Cost.now - began }.freeze,
                                                            arenas: arenas&.map { |one| one.to_h.slice(*OF_ARENAS) } })
      end

      def self.large?(ledger, row) = (ledger.row(row)&.bytes || 0) >= GROWN

      def self.shared_files(ledger, native)
        return unless large?(ledger, :shared_memory)

        files = Mappings.read(native: native).group_by { |mapping| mapping.name.to_sym }
        files = files.transform_values { |mappings| mappings.sum { |mapping| mapping.rows[:shared_memory] || 0 } }
        files.select { |_name, bytes| bytes.positive? }.max_by(MAX_SHARED_FILES, &:last).to_h
      end

      # The loaded extensions that are not Ruby's own and have mmap among their symbols.
      def self.mappers(ledger)
        return unless large?(ledger, :unattributed)

        ruby = $LOADED_FEATURES.grep(%r{/enc/encdb\.so\z}).first.to_s.delete_suffix("enc/encdb.so")
        others = $LOADED_FEATURES.grep(/\.so\z/).reject do |path|
          path.end_with?("memscope.so") || (!ruby.empty? && path.start_with?(ruby))
        end
        others.select { |path| names_mmap?(path) }.map { |path| File.basename(path) }
      end

      def self.names_mmap?(path)
        part = "".b
        SystemCall.attempt { File.open(path, "rb") { |file| nil while file.read(PART, part) && !part.match?(MMAP) } }
        part.match?(MMAP)
      end

      def self.known(ledger, blocks, native)
        { garbage: Garbage.of(blocks), gc_pause_ms: native.gc_pause_ms, shared_files: shared_files(ledger, native),
          **(native.own? ? kept(ledger) : {}) }
      end

      # What only the process itself keeps, or can look up.
      def self.kept(ledger) = { verdict: Runtime.current.verdict, objects: Objects.kept, mappers: mappers(ledger) }

      def self.of_jemalloc(ledger, native)
        [Arenas, Fragmentation].map { |kind| kind.read(native: native) } if ledger.allocator.name == :jemalloc
      end

      # In a copy, nothing would have changed.
      def self.second_snapshot(first, native)
        jemalloc = first.jemalloc if native.own?
        return unless jemalloc && jemalloc[:background_threads]&.zero?
        return unless jemalloc[:pdirty] && jemalloc[:pdirty] * jemalloc[:page_bytes] >= MIN_FREED_BYTES

        sleep(RESAMPLE_SECONDS)
        Snapshot.read
      end

      private_class_method :known, :kept, :large?, :mappers, :names_mmap?, :of_jemalloc, :second_snapshot, :shared_files
    end
  end
end
