# frozen_string_literal: true

require "forwardable"
require_relative "../purge/compaction"

module Memscope
  module Doctor
    # The numbers that rules speak of, each taken or derived from the evidence; nil where the evidence has none.
    #
    # @api private
    class Figures
      extend Forwardable

      # CPU time that a process has used when it has worked: loading and asking the doctor takes a tenth of that.
      SOME_WORK_SECONDS = 1.0
      private_constant :SOME_WORK_SECONDS

      # @return [Diagnosis::Evidence]
      attr_reader :evidence

      # @return [Figures, nil] of the earlier diagnosis
      attr_reader :earlier

      # @!method rss_bytes
      #   @return [Integer, nil]
      def_delegators :ledger, :rss_bytes, :allocator
      def_delegators :evidence, :ledger, :snapshot, :ruby_heap, :process_memory, :cgroup, :lint
      def_delegators :lint, :surroundings

      # @param evidence [Diagnosis::Evidence]
      # @param earlier [Diagnosis::Evidence, nil]
      def initialize(evidence, earlier = nil)
        @evidence = evidence
        @earlier = earlier && Figures.new(earlier)
      end

      def glibc? = allocator.name == :glibc

      def jemalloc? = allocator.name == :jemalloc

      # @return [Integer, nil] of the ledger's row at that path; nil without such a row
      def bytes(*path) = row(*path)&.bytes

      # @return [Integer, nil] the sum of several rows below one; nil where one of them is missing
      def sum(above, ids)
        parts = ids.map { |id| bytes(*above, id) }
        parts.sum unless parts.include?(nil)
      end

      # @return [Object, nil] a count in the detail of the ledger's row at that path
      def detail(*path, name) = row(*path)&.detail&.[](name)

      # @return [Integer, nil]
      def threads = process_memory.threads

      # @return [Float] bytes of the RSS
      def of_rss(bytes) = rss_bytes&.positive? ? bytes.fdiv(rss_bytes) : 0.0

      # @return [Object, nil] a setting of the allocator that serves malloc
      def setting(name) = allocator.settings[name]&.value

      # --- What Ruby says

      # @return [Integer, nil] live slots, and what objects say they hold through malloc; nil where some are left out
      def ruby_bytes
        live = bytes(:ruby_heap, :live_slots) unless ledger.reasons.key?(:held_by_objects_bytes)
        live && (live + (ledger.held_by_objects_bytes || 0))
      end

      # @return [Integer, nil] that malloc has given out, beyond what objects say they hold
      def nobody_bytes
        held = detail(:malloc, :held_by_nobody_bytes)
        held && [held, 0].max
      end

      # @return [Boolean] whether the process runs this series of Ruby, "3.3" for instance
      def ruby?(series) = ledger.ruby.start_with?("#{series}.")

      # @return [Integer] what Ruby lets malloc give out before it collects garbage: that much is free again and again
      def gc_room = snapshot.gc.values_at(:malloc_increase_bytes_limit, :oldmalloc_increase_bytes_limit).compact.sum

      # @return [Integer, nil] pages without an object that Ruby counts among those in use
      def hidden_empty_bytes = ruby_heap.hidden_empty_pages && (ruby_heap.hidden_empty_pages * ruby_heap.page_bytes)

      # @return [Integer, nil] pages that compaction empties; those without an object are not among them
      def compactable_bytes
        ruby_heap.compactable_bytes && [ruby_heap.compactable_bytes - (hidden_empty_bytes || 0), 0].max
      end

      # @return [Range, String] what the documented compaction returns of them, or why that cannot be said
      def compaction
        forecast = Purge::Compaction.forecast(ruby_heap)
        return "What compaction returns cannot be said: #{forecast.reason}." unless forecast.range

        least, most = [forecast.min_bytes, forecast.max_bytes].map { |bytes| bytes - (returned_empty_bytes || 0) }
        [least, 0].max..[most, 0].max
      end

      # @return [Integer] of what a compaction would empty, what Ruby keeps for a setting
      def kept_compactable_bytes
        Purge::Compaction.kept_by_setting(ruby_heap, ruby_heap.compactable_bytes) - kept_empty_bytes
      end

      # @return [Integer] of pages without an object, what Ruby keeps for that setting
      def kept_empty_bytes = Purge::Compaction.kept_by_setting(ruby_heap, hidden_empty_bytes || 0)

      # @return [Integer, nil] of pages without an object, what garbage collections give back
      def returned_empty_bytes
        hidden_empty_bytes && Purge::Compaction.returned_of_empty(ruby_heap, hidden_empty_bytes)
      end

      # --- The allocator

      # @return [Integer, nil] resident in malloc, but in no block that is in use
      def unused_bytes
        in_use = detail(:malloc, :in_use_bytes)
        in_use && [bytes(:malloc) - in_use, 0].max
      end

      # @return [Array<Allocator::Other>] that were meant to serve malloc
      def idle_allocators = allocator.others.select { |other| other.prefix.empty? }

      # @return [Array<Allocator::Other>] that a library has for itself
      def private_allocators = allocator.others - idle_allocators

      # @return [String, nil] the allocator in LD_PRELOAD that is not in this process
      def missing_preload
        name = surroundings.environment[:LD_PRELOAD]&.slice(/jemalloc|mimalloc|tcmalloc/)
        name unless name.nil? || [allocator, *allocator.others].any? { |found| found.name.name == name }
      end

      # @param ids [Array<Symbol>]
      # @return [Array<Lint::Problem>] those with the settings
      def problems(ids) = lint.problems.select { |problem| ids.include?(problem.id) }

      # @param ids [Array<Symbol>]
      # @return [Boolean] whether one of these problems is a warning
      def warnings?(ids) = problems(ids).any? { |problem| problem.severity == :warning }

      # --- glibc

      # @return [Integer, nil] what malloc_trim returns
      def trimmable_bytes = detail(:malloc, :trimmable_bytes)

      # @return [Integer, nil] free in a heap, by the row's id, but in pieces that no trim returns
      def held_open_bytes(heap)
        free = sum([:malloc, heap], %i[free thread_caches top])
        trimmable = detail(:malloc, heap, :free, :trimmable_bytes)
        free && trimmable && [free - trimmable, 0].max
      end

      # @return [Integer] beside the main heap
      def glibc_arenas = detail(:malloc, :arenas, :arenas) || 0

      # --- jemalloc

      # @return [Integer, nil] a total of jemalloc's
      def jemalloc(name) = snapshot.jemalloc&.[](name)

      # @return [Range, nil] of jemalloc's dirty pages, at least and at most so much is resident: it counts those that
      #   nobody has written to as well, and they are among what is counted and not resident
      def dirty_bytes
        dirty = bytes(:malloc, :dirty)
        dirty && ([dirty + (bytes(:malloc, :not_resident) || 0), 0].max..[dirty, bytes(:malloc)].min)
      end

      # @return [Boolean] whether a background thread purges
      def background_threads? = (jemalloc(:background_threads) || 0).positive?

      # @return [Boolean] whether background threads were asked for, and do not run since the process was forked
      def background_threads_lost? = surroundings.forked? && setting(:background_thread) == true && !background_threads?

      # @return [Integer] freed pages in arenas that have no thread any more: nobody there gives them back
      def stranded_dirty_bytes = dirty_in { |arena| arena[:threads]&.zero? }

      # @return [Integer] freed pages in arenas that are to keep them
      def undecaying_dirty_bytes = dirty_in { |arena| arena[:dirty_decay_ms] == -1 }

      # @return [Array<Fragmentation::Stuck>] the sizes of block that most is stuck in
      def stuck = evidence.fragmentation&.stuck&.first(3) || []

      # @return [Boolean, nil] whether pages were purged between the two snapshots; nil where there was no second one
      def purging_now?
        later = evidence.second_snapshot&.jemalloc
        later && later[:dirty_npurge] > jemalloc(:dirty_npurge)
      end

      # @return [Boolean] whether the process was forked, has hardly worked since, and gives no pages back: a worker
      #   that serves requests frees pages all the time, and between two of them looks just as idle
      def idle_since_fork?
        surroundings.forked? && purging_now? == false && (surroundings.cpu_seconds || 0) < SOME_WORK_SECONDS
      end

      # @return [Boolean] whether pages were purged since the earlier diagnosis
      def purged_since_earlier? = purged_since_earlier&.positive? || false

      # @return [Boolean] whether none were, though all that were there should have been
      def decay_overdue?
        purged_since_earlier&.zero? && seconds * 1000 > setting(:dirty_decay_ms) &&
          [earlier.jemalloc(:pdirty), jemalloc(:pdirty)].min >= jemalloc(:pdirty) / 2
      end

      # --- What changed

      # @return [String, nil] why the earlier diagnosis cannot be compared with
      def incomparable
        return "no earlier diagnosis was given" unless earlier
        return "the earlier diagnosis is of another process" unless same_process?

        "the earlier diagnosis is not earlier" unless earlier.ledger.at < ledger.at
      end

      # @yieldparam figures [Figures]
      # @yieldreturn [Integer, nil]
      # @return [Integer, nil] by how much something rose since the earlier diagnosis; 0 where it fell
      def growth
        before = yield(earlier)
        now = yield(self)
        before && now && [now - before, 0].max
      end

      # @return [Float] since the earlier diagnosis
      def seconds = (ledger.at - earlier.ledger.at).to_f

      # @return [Boolean] whether the earlier diagnosis is of this process
      def same_process?
        !earlier.nil? && earlier.ledger.pid == ledger.pid && earlier.surroundings.started == surroundings.started
      end

      # @return [Integer, nil] in the thread caches of the parent before the fork, less than what is in this process's
      def stranded_cache_bytes
        return unless earlier && earlier.ledger.pid == surroundings.parent_pid

        before = earlier.jemalloc(:tcache_bytes)
        before && [before - jemalloc(:tcache_bytes), 0].max
      end

      # --- The container

      # @return [Integer, nil]
      def limit_bytes = cgroup.limit_bytes

      # @return [Integer, nil] what the kernel cannot take back without killing
      def working_set_bytes = cgroup.working_set_bytes || cgroup.current_bytes

      # @return [Float, nil] the working set's share of the limit
      def fullness
        working_set_bytes.fdiv(cgroup.limit_bytes) if working_set_bytes && cgroup.limit_bytes&.positive?
      end

      # @return [Integer, nil] how many processes like this one the limit allows, which share what this one shares
      def capacity
        shared = process_memory.shared_bytes
        own = process_memory.uss_bytes
        (cgroup.limit_bytes - shared) / own if cgroup.limit_bytes && shared && own&.positive?
      end

      private

      def dirty_in(&block) = (evidence.arenas || []).select(&block).sum { |arena| arena[:dirty_bytes] || 0 }

      # Pages; nil where the earlier diagnosis cannot be compared with.
      def purged_since_earlier
        jemalloc(:dirty_purged) - earlier.jemalloc(:dirty_purged) if jemalloc? && incomparable.nil? && earlier.jemalloc?
      end

      def row(*path)
        ledger.dig(*path)
      rescue KeyError
        nil
      end
    end
  end
end
