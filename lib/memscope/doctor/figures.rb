# frozen_string_literal: true

require "forwardable"
require_relative "../ruby_heap/compaction_forecast"
require_relative "changes"
require_relative "collector"

module Memscope
  module Doctor
    # The numbers that the rules use, each taken or derived from the evidence; nil if the evidence lacks it.
    #
    # @api private
    class Figures
      extend Forwardable
      include Changes

      # A process that has used more CPU time than this, in seconds, has done some work: loading and running the doctor
      # takes a tenth of that time.
      SOME_WORK_SECONDS = 1.0
      # The ledger's reasons for which figures are missing.
      MISSING = %i[extension rss_bytes malloc deep objects ractors garbage].freeze
      # The most that malloc needs for what a just-in-time compiler asks for, in many small blocks: with YJIT of Ruby
      # 4.0, 1.38 to 1.43 under glibc and 1.08 under jemalloc.
      JIT_BLOCKS = 1.5
      # The figures of other readings without which a rule cannot judge.
      JUDGED = %i[slots live_slots hidden_empty_pages compactable_bytes swap_bytes anonymous_huge_bytes
                  working_set_bytes].freeze
      private_constant :SOME_WORK_SECONDS, :MISSING, :JIT_BLOCKS, :JUDGED

      # @return [Diagnosis::Evidence]
      attr_reader :evidence

      # @return [Figures, nil] the figures of the earlier diagnosis
      attr_reader :earlier

      # @return [Collector]
      attr_reader :collector

      # @!method rss_bytes
      #   @return [Integer, nil]
      # @!method ruby_bytes
      #   @return [Integer, nil] bytes of live slots, plus what objects report holding through malloc
      def_delegators :ledger, :rss_bytes, :ruby_bytes, :allocator, :garbage_max_bytes, :row
      def_delegators :evidence, :ledger, :snapshot, :ruby_heap, :process_memory, :cgroup, :lint, :objects,
                     :garbage, :verdict
      def_delegators :lint, :environment

      # @param evidence [Diagnosis::Evidence]
      # @param earlier [Diagnosis::Evidence, nil]
      def initialize(evidence, earlier = nil)
        @evidence = evidence
        @earlier = earlier && Figures.new(earlier)
        @margin = 1.0
        @collector = Collector.new(evidence)
        @forecast = RubyHeap::CompactionForecast.new(ruby_heap)
      end

      # @param number [Numeric, nil]
      # @param threshold [Numeric]
      # @return [Boolean] whether the number reaches the threshold times the margin
      def reaches?(number, threshold) = !number.nil? && number >= threshold * @margin

      # @param margin [Float]
      # @yield the judgement of a rule by thresholds that are multiplied by the margin
      # @return [Object] the block's value
      def with_margin(margin)
        @margin = margin
        yield
      ensure
        @margin = 1.0
      end

      def glibc? = allocator.name == :glibc

      def jemalloc? = allocator.name == :jemalloc

      # @return [Integer, nil] bytes of the ledger's row at that path; nil if there is no such row
      def bytes(*path) = row(*path)&.bytes

      # @return [Object, nil] a count in the detail of the ledger's row at that path
      def detail(*path, name) = row(*path)&.detail&.[](name)

      # @return [Integer, nil]
      def threads = process_memory.threads

      # @return [Float] these bytes as a share of the RSS
      def of_rss(bytes) = rss_bytes&.positive? ? bytes.fdiv(rss_bytes) : 0.0

      # @param id [Symbol] of a top row of the ledger
      # @param bytes [Integer, Range, String, nil] how much of the row a remedy returns; a String says why it returns
      #   nothing
      # @return [Range, String, nil] how much of that the machine gains: a page shared with other processes stays in
      #   memory
      def gained(id, bytes)
        return bytes unless bytes.is_a?(Integer) || bytes.is_a?(Range)

        range = bytes.is_a?(Range) ? bytes : (bytes..bytes)
        ledger.unshared(id, range) || ((environment.forked? ? 0 : range.begin)..range.end)
      end

      # @return [String] why figures are missing
      def missing
        others = [ruby_heap, process_memory, cgroup].flat_map do |reading|
          reading.reasons.slice(*JUDGED).select { |id, _why| reading.public_send(id).nil? }.values
        end
        why = [*ledger.reasons.slice(*MISSING).values, *others].uniq
        why.empty? ? "its figures are missing" : why.join("; ")
      end

      # @return [Object, nil] a setting of the allocator that serves malloc
      def setting(name) = allocator.settings[name]&.value

      # --- Ruby

      # @return [Boolean] whether all objects were asked for their sizes; if not, ruby_bytes is a lower bound, and
      #   untracked_bytes an upper bound
      def sized? = unsized_reason.nil?

      # @return [String, nil] which objects were not asked for their sizes, and why
      def unsized_reason = ledger.reasons[:held_by_objects_bytes] || (missing unless ledger.held_by_objects_bytes)

      # @return [Integer, nil] bytes in use in malloc, as far as they can be resident, that neither objects nor a
      #   just-in-time compiler report holding. jemalloc also counts blocks never written to, such as VM stacks
      def untracked_bytes
        unheld_bytes && [unheld_bytes, bytes(:malloc) - tracked_bytes + absent_bytes].min.clamp(0..)
      end

      # @return [Integer, nil] the same, resident or not; negative if they report more
      def unheld_bytes
        in_use = detail(:malloc, :in_use_bytes)
        in_use && tracked_bytes && (in_use - tracked_bytes)
      end

      # @return [Integer] bytes that objects hold, but that are not resident, as far as that is known
      def absent_bytes = detail(:malloc, :held_absent_bytes) || 0

      # @return [Range] bounds of the bytes that a just-in-time compiler of Ruby holds in malloc, besides the code: it
      #   counts what it asked for
      def jit_bytes = (detail(:malloc, :jit_metadata_bytes) || 0).then { |asked| asked..(asked * JIT_BLOCKS).ceil }

      # @return [Integer, nil] bytes of live slots and of malloc memory in use
      def in_use_bytes
        parts = [bytes(:ruby_heap, :live_slots), detail(:malloc, :in_use_bytes)]
        parts.sum unless parts.include?(nil)
      end

      # @return [Integer] bytes by which malloc has grown since the last major GC, as Ruby counts it
      def unjudged_increase_bytes = snapshot.gc[:oldmalloc_increase_bytes] || 0

      # @return [Integer, nil] bytes of garbage; if it is unknown what is garbage, the most bytes that may be garbage
      def garbage_bytes = garbage ? garbage.bytes : garbage_max_bytes

      # @return [Range, nil] what the machine gains by a collection, and by a trim or purge after it
      def garbage_gain
        return unless garbage
        return garbage.gain if garbage.returned_private_bytes || !environment.forked?

        0..garbage.returned_max_bytes
      end

      # @return [Boolean] whether the process runs this series of Ruby, "3.3" for instance
      def ruby?(series) = ledger.ruby.start_with?("#{series}.")

      # @return [Integer] bytes by which Ruby lets malloc grow before a GC; up to that much can be free after the GC
      def gc_room = snapshot.gc.values_at(:malloc_increase_bytes_limit, :oldmalloc_increase_bytes_limit).compact.sum

      # @return [Integer, nil] bytes of pages without any object that Ruby nevertheless counts as in use
      def hidden_empty_bytes = ruby_heap.hidden_empty_pages && (ruby_heap.hidden_empty_pages * ruby_heap.page_bytes)

      # @return [Integer, nil] hidden_empty_bytes; if variables keep these pages, also bytes of those that are counted
      def empty_heap_bytes = collector.keepers.any? ? hidden_empty_bytes&.+(ruby_heap.empty_bytes) : hidden_empty_bytes

      # @return [Integer, nil] bytes of the pages that compaction empties or that Ruby keeps empty, excluding
      #   hidden_empty_bytes
      def compactable_bytes
        return unless ruby_heap.compactable_bytes

        [ruby_heap.compactable_bytes - (hidden_empty_bytes || 0), 0].max + ruby_heap.empty_bytes
      end

      # @return [Range, String] how many bytes the machine gains by Memscope.purge(:compact), excluding
      #   returned_empty_bytes; or why no forecast is possible
      def compaction
        return "#{compaction_refusal}." if compaction_refusal

        range = @forecast.range
        return "What compaction returns cannot be predicted: #{@forecast.reason}." unless range

        least, most = range.minmax.map { |bytes| [bytes - (returned_empty_bytes || 0), 0].max }
        gained(:ruby_heap, least..most)
      end

      # @return [String, nil] why this Ruby's heap is never compacted
      def compaction_refusal = RubyHeap.compaction_refusal(ruby_heap.ruby)

      # @return [Integer] bytes of the pages that a compaction empties but Ruby keeps because of free_slots_max_ratio
      def kept_compactable_bytes = @forecast.kept_by_setting(ruby_heap.compactable_bytes) - kept_empty_bytes

      # @return [Integer] the part of hidden_empty_bytes that Ruby keeps because of free_slots_max_ratio
      def kept_empty_bytes = @forecast.kept_by_setting(hidden_empty_bytes || 0)

      # @return [Integer, nil] the part of hidden_empty_bytes that garbage collections return
      def returned_empty_bytes = hidden_empty_bytes && @forecast.returned_of_empty(hidden_empty_bytes)

      # --- The allocator

      # @return [Integer, nil] resident bytes of malloc that are not part of a used block
      def unused_bytes
        in_use = detail(:malloc, :in_use_bytes)
        in_use && [bytes(:malloc) - in_use, 0].max
      end

      # @return [Array<Allocator::Other>] allocators that could serve malloc, but serve neither malloc nor, as far as
      #   they report, a library
      def idle_allocators
        allocator.others.select { |other| other.prefix.empty? && !other.allocated_bytes&.positive? }
      end

      # @return [String, nil] the allocator that LD_PRELOAD names but that is not in this process
      def missing_preload
        name = environment.variables[:LD_PRELOAD]&.slice(/jemalloc|mimalloc|tcmalloc/)
        name unless name.nil? || [allocator, *allocator.others].any? { |found| found.name.name == name }
      end

      # @param ids [Array<Symbol>]
      # @return [Array<Lint::Problem>] the settings' problems with these ids
      def problems(ids) = lint.problems.select { |problem| ids.include?(problem.id) }

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

      # --- The container

      # @return [Integer, nil]
      def limit_bytes = cgroup.limit_bytes

      # @return [Integer, nil] bytes of the container without inactive page cache; with it, if that part is unknown
      def working_set_bytes = cgroup.working_set_bytes || cgroup.current_bytes

      # @return [Integer, nil]
      def oom_kills = cgroup.events&.[](:oom_kill)

      # @return [Float, nil] the working set's share of the limit
      def fullness = (working_set_bytes.fdiv(limit_bytes) if working_set_bytes && limit_bytes&.positive?)

      private

      def tracked_bytes = ledger.held_by_objects_bytes && (ledger.held_by_objects_bytes + jit_bytes.end)

      def dirty_in(&block) = (evidence.arenas || []).select(&block).sum { |arena| arena[:dirty_bytes] || 0 }

      # Number of pages; nil if the two diagnoses cannot be compared.
      def purged_since_earlier
        jemalloc(:dirty_purged) - earlier.jemalloc(:dirty_purged) if jemalloc? && incomparable.nil? && earlier.jemalloc?
      end
    end
  end
end
