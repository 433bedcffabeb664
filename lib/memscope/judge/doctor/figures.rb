# frozen_string_literal: true

require "forwardable"
require_relative "../../process/ruby_heap/compaction_forecast"
require_relative "advice"

module Memscope
  module Doctor
    # The numbers that the rules use, each taken or derived from the evidence; nil if the evidence lacks it. The blocks
    # of the rules run in this object.
    # @api private
    class Figures
      extend Forwardable
      include Quantity
      include Advice

      # The ledger's reasons for which figures are missing.
      MISSING = %i[extension rss_bytes malloc deep objects ractors garbage threads].freeze
      # malloc's maximum bytes per byte that a just-in-time compiler requests in many small blocks: with YJIT of Ruby
      # 4.0, 1.38 to 1.43 under glibc and 1.08 under jemalloc.
      JIT_BLOCKS = 1.5
      # Of a traced object: its record, of seven words, and its entry in the table (objspace's allocation_info).
      TRACED_BYTES = 96
      # The figures of other readings without which a rule cannot judge.
      JUDGED = %i[slots live_slots hidden_empty_pages compactable_bytes swap_bytes anonymous_huge_bytes
                  working_set_bytes].freeze

      attr_reader :evidence, :earlier

      # @!method rss_bytes
      #   @return [Integer, nil]
      # @!method ruby_bytes
      #   @return [Integer, nil] bytes of live slots, plus those that objects report holding through malloc
      def_delegators :ledger, :rss_bytes, :ruby_bytes, :allocator, :garbage_max_bytes, :row
      def_delegators :evidence, :ledger, :snapshot, :ruby_heap, :process_memory, :cgroup, :lint, :objects,
                     :garbage, :verdict
      def_delegators :lint, :environment
      def_delegators :process_memory, :anonymous_huge_bytes, :swap_bytes, :uss_bytes, :threads
      def_delegators :cgroup, :limit_bytes

      # @param earlier [Figures, nil] those of an earlier diagnosis
      # @param margin [Float] by which thresholds are multiplied
      def initialize(evidence, earlier = nil, margin: 1.0)
        @evidence = evidence
        @earlier = earlier
        @margin = margin
      end

      # @param entry [Symbol, Proc, nil] the name of a figure, or a block to run in this object
      def figure(entry, *given) = entry.is_a?(Proc) ? instance_exec(*given, &entry) : (entry && public_send(entry))

      def reaches?(number, threshold) = !number.nil? && number >= threshold * @margin

      # @return [Integer, nil] bytes of the ledger's row at that path; nil if there is no such row
      def row_bytes(*path) = row(*path)&.bytes

      # @return [Object, nil] a count in the detail of the ledger's row at that path
      def detail(*path, name) = row(*path)&.detail&.[](name)

      # @return [Float] these bytes as a share of the RSS
      def of_rss(bytes) = rss_bytes&.positive? ? bytes.fdiv(rss_bytes) : 0.0

      # @param id [Symbol] of a top row of the ledger
      # @param bytes [Integer, Range] how much of the row a remedy returns
      # @return [Range] how much of that the machine gains: a page shared with other processes stays in memory
      def gained(id, bytes)
        range = bytes.is_a?(Range) ? bytes : (bytes..bytes)
        ledger.unshared(id, range) || ((environment.forked? ? 0 : range.begin)..range.end)
      end

      # @return [String] why figures are missing
      def missing
        others = [ruby_heap, process_memory, cgroup].flat_map do |reading|
          reading.reasons.slice(*JUDGED).select { |id, _why| reading.public_send(id).nil? }.values
        end
        why = [*ledger.reasons.slice(*MISSING).values, *others].uniq
        why.empty? ? text(:figures_missing) : why.join("; ")
      end

      # @return [Symbol, nil] why a rule does not apply to this process: the name of a text
      def without_glibc = (:without_glibc unless allocator.name == :glibc)

      def without_jemalloc = (:without_jemalloc unless allocator.name == :jemalloc)

      def without_limit = (:without_limit unless limit_bytes)

      # @return [Symbol, nil] why this diagnosis cannot be compared with the earlier one
      def incomparable
        return :no_earlier unless earlier

        :not_earlier unless earlier.ledger.at < ledger.at
      end

      # @return [Symbol, nil] why the growth of objects and that of native memory cannot be told
      def undivided = incomparable || (unsized_growth && :undivided)

      # @return [Symbol, nil] why the growth of all memory in use is unknown, or shows no more than that of its parts
      def divided = incomparable || (:divided unless unsized_growth)

      # @return [Boolean] whether the history is long enough for a verdict on growth
      def judged? = !verdict.nil? && verdict.kind != :too_early

      # --- Ruby

      # @return [String, nil] the objects whose sizes were not read, and why. If there are any, ruby_bytes is a lower
      #   bound, and untracked_bytes an upper bound
      def unsized_reason = ledger.reasons[:held_by_objects_bytes] || (missing unless ledger.held_by_objects_bytes)

      # @return [Integer, nil] bytes in use in malloc, as far as they can be resident, that neither objects nor a
      #   just-in-time compiler report holding. malloc also counts blocks never written to, such as VM stacks
      def untracked_bytes
        unheld_bytes && [unheld_bytes, used_bytes - tracked_bytes + absent_bytes].min.clamp(0..)
      end

      # @return [Integer] resident bytes of malloc's blocks in use; of all of malloc if unknown, as under jemalloc
      def used_bytes
        used = %i[main_heap arenas mmapped].filter_map { |heap| row_bytes(:malloc, heap, :in_use) }
        used.empty? ? row_bytes(:malloc) : used.sum
      end

      # @return [Integer, nil] the same, resident or not; negative if they report more
      def unheld_bytes = tracked_bytes && detail(:malloc, :in_use_bytes)&.-(tracked_bytes)

      # @return [Integer] bytes that objects hold, but that are not resident, as far as that is known
      def absent_bytes = detail(:malloc, :held_absent_bytes) || 0

      # @return [Range] bounds of the bytes that a just-in-time compiler of Ruby holds in malloc, besides the code: it
      #   counts the bytes that it requested
      def jit_bytes
        asked = detail(:malloc, :jit_metadata_bytes) || 0
        asked..(asked * JIT_BLOCKS).ceil
      end

      # @return [Integer] bytes by which malloc has grown since the last major GC, as Ruby counts it
      def unjudged_increase_bytes = snapshot.gc[:oldmalloc_increase_bytes] || 0

      # @return [String, nil] for how long a full GC or a compaction stops Ruby, as a purge predicts it
      def predicted_pause(lever) = evidence.gc_pause_ms && pause(evidence.gc_pause_ms * RubyHeap::FULL_GCS.fetch(lever))

      # @return [Integer, nil] bytes of garbage or, if these are unknown, the maximum bytes that may be garbage
      def garbage_bytes = garbage ? garbage.bytes : garbage_max_bytes

      # @return [Integer] bytes by which Ruby lets malloc grow before a GC; up to that much can be free after the GC
      def gc_room = snapshot.gc.values_at(:malloc_increase_bytes_limit, :oldmalloc_increase_bytes_limit).compact.sum

      # If no forked child found the garbage, all that died since the last full GC may be garbage. A large bound is not
      # worth reporting unless Ruby, which usually collects once malloc has grown by gc_room, is late.
      #
      # @return [Integer, nil] garbage_bytes; nil if there is no such bound
      def bounded_garbage_bytes
        garbage_bytes if garbage || unjudged_increase_bytes > 2 * gc_room || garbage_bytes.to_i < 2 * FLOOR
      end

      # @return [Array(String, String), nil] the call that switched the collector or its major collections off, and the
      #   one that switches it on
      def collector_off
        return ["GC.disable", "GC.enable"] if ruby_heap.gc_disabled?
        return unless environment.major_collections? == false

        %w[false true].map { |mark| "GC.config(rgengc_allow_full_mark: #{mark})" }
      end

      # @return [Integer] bytes of the records of traced objects, at most; 0 unless allocations are traced
      def traced_bytes = environment.allocation_tracing? ? ruby_heap.live_slots * TRACED_BYTES : 0

      # @return [Integer, nil] bytes of pages without any object that Ruby nevertheless counts as in use
      def hidden_empty_bytes = ruby_heap.hidden_empty_pages&.*(ruby_heap.page_bytes)

      # @return [Array<String>] the variables that explain at least half of the pages without any object
      def page_keepers
        empty = ruby_heap.hidden_empty_pages.to_i + ruby_heap.empty_pages.to_i
        kept = ruby_heap.free_slots_floor.to_i * ruby_heap.pages.to_i / [ruby_heap.slots.to_i, 1].max
        environment.raised(:pages).reject { |text| text.include?("INIT_SLOTS") && kept < empty / 2 }
      end

      def forecast = @forecast ||= RubyHeap::CompactionForecast.new(ruby_heap)

      # @return [Integer, nil] the part of hidden_empty_bytes that garbage collections return
      def returned_empty_bytes = hidden_empty_bytes && forecast.returned_of_empty(hidden_empty_bytes)

      # --- The allocator

      # @return [Object, nil] a setting of the allocator that serves malloc
      def setting(name) = allocator.settings[name]&.value

      # @return [Integer, nil] resident bytes of malloc that are not part of a used block
      def unused_bytes = detail(:malloc, :in_use_bytes)&.then { |in_use| [row_bytes(:malloc) - in_use, 0].max }

      # @return [Integer, nil] bytes that malloc_trim would return to the kernel
      def trimmable_bytes = detail(:malloc, :trimmable_bytes)

      # @return [Integer] bytes of free pages that the kernel does not take back: locked ones, or all of them in some
      #   sandboxes
      def kept_by_kernel_bytes(heaps = %i[main_heap arenas])
        heaps.sum { |heap| detail(:malloc, heap, :free, :kept_by_kernel_bytes) || 0 }
      end

      # @return [Integer, nil] bytes of a heap (given by its row's id) that are free in partly used pages, so that no
      #   trim returns them
      def unreturnable_bytes(heap)
        free = total(%i[free thread_caches top].map { |id| row_bytes(:malloc, heap, id) })
        trimmable = detail(:malloc, heap, :free, :trimmable_bytes)
        [free - trimmable - kept_by_kernel_bytes([heap]), 0].max if free && trimmable
      end

      # @return [Boolean] whether glibc itself may ask for transparent huge pages: since 2.43 unless told otherwise (the
      #   release notes name arm64, users have seen it elsewhere); before 2.43 only if glibc.malloc.hugetlb=1. With a
      #   larger value, glibc uses huge pages of another kind
      def malloc_asks_for_huge_pages?
        return false if without_glibc || environment.thp_mode != "madvise"
        return false if process_memory.thp_enabled? == false

        asked = setting(:hugetlb)
        asked.nil? ? (allocator.version.to_s.split(".").map(&:to_i) <=> [2, 43]) >= 0 : asked == 1
      end

      # @return [Range, nil] lower and upper bound of the resident bytes of jemalloc's dirty pages: jemalloc also counts
      #   pages never written to as dirty, and the ledger's row :not_resident (never positive) subtracts them. Since
      #   5.3.1 there are many such pages: jemalloc takes up to a quarter more address space than a large block needs,
      #   and the rest counts as dirty (pac_alloc_real)
      def dirty_bytes
        dirty = row_bytes(:malloc, :dirty) or return
        [dirty + row_bytes(:malloc, :not_resident).to_i, 0].max..[dirty, row_bytes(:malloc)].min
      end

      # --- The container

      # @return [Integer, nil] bytes of the container without inactive page cache; with it, if that part is unknown
      def working_set_bytes = cgroup.working_set_bytes || cgroup.current_bytes

      # --- Growth since the earlier diagnosis

      # @return [String, nil] the objects whose sizes were not read in one of the two diagnoses
      def unsized_growth = [self, earlier].filter_map(&:unsized_reason).first

      # @return [Integer, nil] how much the figure has grown since the earlier diagnosis; 0 if it fell
      def growth_of(figure) = change_of(figure)&.clamp(0..)

      # @return [Integer] resident bytes of the C library's malloc, which a library calls beside jemalloc
      def c_library_bytes = detail(:unattributed, :c_library_bytes) || 0

      # @return [Integer, nil] growth of untracked_bytes, but no more than that of unheld_bytes: blocks that were in use
      #   but not resident before may have become resident since
      def untracked_growth_bytes = [growth_of(:untracked_bytes), growth_of(:unheld_bytes)].compact.min

      # @return [Boolean] whether both diagnoses know the garbage
      def garbage_known? = [earlier, self].all?(&:garbage)

      # @return [Integer, nil] growth of Ruby's objects; without their garbage, if both diagnoses know it
      def object_growth_bytes = growth_of(reachable(:ruby_bytes))

      # @return [Integer, nil] growth of live slots and of malloc memory in use, likewise
      def in_use_growth_bytes = growth_of(reachable(:in_use_bytes))

      # @param bytes [Symbol] a figure
      # @return [Proc] the figure without garbage, if both diagnoses know it
      def reachable(bytes, known = garbage_known?) = -> { public_send(bytes)&.-(known ? garbage.bytes : 0) }

      # @return [Integer, nil] bytes of live slots and of malloc memory in use
      def in_use_bytes = total([row_bytes(:ruby_heap, :live_slots), detail(:malloc, :in_use_bytes)])

      # @return [Integer, nil] resident memory that malloc and Ruby's heap keep, in no used block or slot
      def free_bytes = unused_bytes&.+(%i[free_slots empty_pages].sum { |id| row_bytes(:ruby_heap, id).to_i })

      # @return [Float] time since the earlier diagnosis
      def seconds = (ledger.at - earlier.ledger.at).to_f

      # @return [Hash{String => Integer}] how many threads and fibers have a stack more than in the earlier diagnosis
      def stacks_more
        paths = { "fibers" => %i[stacks fibers stacks], "threads" => %i[stacks threads live] }
        paths.transform_values { |path| detail(*path).to_i - earlier.detail(*path).to_i }
      end

      # @return [Integer, nil] growth of private memory beyond that of RSS
      def unshared_growth_bytes = growth_of(:rss_bytes)&.then { |all| change_of(:uss_bytes)&.-(all)&.clamp(0..) }

      # @return [Hash{Symbol => Object}] by how much RSS, USS and each row have grown since the earlier diagnosis, the
      #   row that grew most first, and when that was; the rows sum to RSS. Empty if it cannot be compared
      def changes
        return {} if incomparable || !rss_bytes || !earlier.rss_bytes

        ids = ledger.rows.map(&:id) | earlier.ledger.rows.map(&:id)
        rows = ids.map { |id| [id, change_of(-> { row_bytes(id) || 0 })] }.sort_by { |_id, bytes| -bytes }.to_h
        { changes: { rss: change_of(:rss_bytes), uss: change_of(:uss_bytes), **rows }.compact,
          changed_since: (earlier.ledger.at.to_r * 1000).round }
      end

      private

      def change_of(figure)
        before, now = [earlier, self].map { |figures| figures.figure(figure) }
        now - before if before && now
      end

      def tracked_bytes = ledger.held_by_objects_bytes && (ledger.held_by_objects_bytes + jit_bytes.end)
    end
  end
end
