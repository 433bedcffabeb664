# frozen_string_literal: true

module Memscope
  module Doctor
    # The part of Figures that one allocator alone has.
    #
    # @api private
    module MallocFigures
      # A process that has used more CPU time than this, in seconds, has done some work: loading and running the doctor
      # takes a tenth of that time.
      SOME_WORK_SECONDS = 1.0
      private_constant :SOME_WORK_SECONDS

      # --- glibc

      # @return [Integer, nil] bytes that malloc_trim would return to the kernel
      def trimmable_bytes = detail(:malloc, :trimmable_bytes)

      # @return [Integer, nil] trimmable_bytes plus the free pages that the kernel does not take back: locked ones, or
      #   all of them in some sandboxes
      def free_page_bytes = trimmable_bytes && (trimmable_bytes + kept_by_kernel_bytes)

      # @return [Integer]
      def kept_by_kernel_bytes
        %i[main_heap arenas].sum { |heap| detail(:malloc, heap, :free, :kept_by_kernel_bytes) || 0 }
      end

      # @return [Range, String] what the machine gains by a trim, or why it gains nothing
      def trim_gain
        return "#{ledger.kept_reason}." if trimmable_bytes < kept_by_kernel_bytes / 16

        own = detail(:malloc, :trimmable_private_bytes)
        own ? (own..own) : gained(:malloc, trimmable_bytes)
      end

      # @return [Boolean] whether other processes share most of what a trim returns
      def trims_shared? = (detail(:malloc, :trimmable_private_bytes) || trimmable_bytes) < trimmable_bytes / 2

      # @return [Integer, nil] bytes of a heap (given by its row's id) that are free in partly used pages, so that no
      #   trim returns them
      def unreturnable_bytes(heap)
        free = %i[free thread_caches top].map { |id| bytes(:malloc, heap, id) }
        trimmable = detail(:malloc, heap, :free, :trimmable_bytes)
        kept = detail(:malloc, heap, :free, :kept_by_kernel_bytes) || 0
        [free.sum - trimmable - kept, 0].max if trimmable && free.all?
      end

      # @return [Boolean] whether glibc itself may ask for transparent huge pages: since 2.43 unless told otherwise (the
      #   release notes name arm64, users have seen it elsewhere); before 2.43 only if glibc.malloc.hugetlb=1. With a
      #   larger value, glibc uses huge pages of another kind
      def malloc_asks_for_huge_pages?
        return false unless glibc? && environment.thp_mode == "madvise" && process_memory.thp_enabled? != false

        asked = setting(:hugetlb)
        asked.nil? ? (allocator.version.to_s.split(".").map(&:to_i) <=> [2, 43]) >= 0 : asked == 1
      end

      # @return [Integer, nil] upper bound of the bytes in huge pages that are resident but unused in malloc
      def unused_huge_bytes = [unused_bytes, process_memory.anonymous_huge_bytes].then { |all| all.min if all.all? }

      # @return [Integer] the number of arenas, without the main heap
      def glibc_arenas = detail(:malloc, :arenas, :arenas) || 0

      # --- jemalloc

      # @return [Integer, nil] a total from jemalloc's statistics
      def jemalloc(name) = snapshot.jemalloc&.[](name)

      # @return [Range, nil] lower and upper bound of the resident bytes of jemalloc's dirty pages: jemalloc also counts
      #   pages never written to as dirty, and the ledger's row :not_resident (never positive) subtracts them. Since
      #   5.3.1 there are many such pages: jemalloc takes up to a quarter more address space than a large block needs,
      #   and the rest counts as dirty (pac_alloc_real)
      def dirty_bytes
        dirty = bytes(:malloc, :dirty)
        dirty && ([dirty + (bytes(:malloc, :not_resident) || 0), 0].max..[dirty, bytes(:malloc)].min)
      end

      # @return [Boolean] whether a background thread purges
      def background_threads? = (jemalloc(:background_threads) || 0).positive?

      # @return [Boolean] whether background threads are enabled, but did not survive the fork
      def background_threads_lost? = environment.forked? && setting(:background_thread) == true && !background_threads?

      # @return [Integer] bytes of freed pages in arenas without threads, so that no allocating thread returns them
      def stranded_dirty_bytes = dirty_in { |arena| arena[:threads]&.zero? }

      # @return [Integer] bytes of freed pages in arenas that never return them (dirty_decay_ms:-1)
      def undecaying_dirty_bytes = dirty_in { |arena| arena[:dirty_decay_ms] == -1 }

      # @return [Array<Fragmentation::Stuck>] the three block sizes with the most stuck memory
      def stuck = evidence.fragmentation&.stuck&.first(3) || []

      # @return [Boolean, nil] whether pages were purged between the two snapshots; nil without a second snapshot
      def purging_now?
        later = evidence.second_snapshot&.jemalloc
        later && later[:dirty_npurge] > jemalloc(:dirty_npurge)
      end

      # @return [Boolean] whether the process was forked, has used hardly any CPU time since, and returns no pages. The
      #   CPU time rules out a worker between two requests, which returns no pages at that moment either
      def idle_since_fork?
        environment.forked? && purging_now? == false && (environment.cpu_seconds || 0) < SOME_WORK_SECONDS
      end

      # @return [Boolean] whether pages were purged since the earlier diagnosis
      def purged_since_earlier? = purged_since_earlier&.positive? || false

      # @return [Boolean] whether no pages were purged since the earlier diagnosis, although at least half of the dirty
      #   pages were due
      def decay_overdue?
        decay = setting(:dirty_decay_ms)
        decay && purged_since_earlier&.zero? && seconds * 1000 > decay &&
          [earlier.jemalloc(:pdirty), jemalloc(:pdirty)].min >= jemalloc(:pdirty) / 2
      end

      private

      def dirty_in(&block) = (evidence.arenas || []).select(&block).sum { |arena| arena[:dirty_bytes] || 0 }

      # Number of pages; nil if the two diagnoses cannot be compared.
      def purged_since_earlier
        jemalloc(:dirty_purged) - earlier.jemalloc(:dirty_purged) if jemalloc? && incomparable.nil? && earlier.jemalloc?
      end
    end
  end
end
