# frozen_string_literal: true

require "forwardable"
require_relative "../ruby_heap/compaction_forecast"

module Memscope
  module Doctor
    # The numbers that the rules use, each taken or derived from the evidence; nil where the evidence has none.
    #
    # @api private
    class Figures
      extend Forwardable

      # A process that has used more CPU time than this has done some work: to load and run the doctor takes a tenth.
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
      def_delegators :lint, :environment

      # @param evidence [Diagnosis::Evidence]
      # @param earlier [Diagnosis::Evidence, nil]
      def initialize(evidence, earlier = nil)
        @evidence = evidence
        @earlier = earlier && Figures.new(earlier)
        @forecast = RubyHeap::CompactionForecast.new(ruby_heap)
      end

      def glibc? = allocator.name == :glibc

      def jemalloc? = allocator.name == :jemalloc

      # @return [Integer, nil] of the ledger's row at that path; nil without such a row
      def bytes(*path) = row(*path)&.bytes

      # @return [Object, nil] a count in the detail of the ledger's row at that path
      def detail(*path, name) = row(*path)&.detail&.[](name)

      # @return [Integer, nil]
      def threads = process_memory.threads

      # @return [Float] the share of the RSS
      def of_rss(bytes) = rss_bytes&.positive? ? bytes.fdiv(rss_bytes) : 0.0

      # @return [Object, nil] a setting of the allocator that serves malloc
      def setting(name) = allocator.settings[name]&.value

      # --- Ruby

      # @return [Integer, nil] live slots, and what objects report to hold through malloc; nil where not every one was
      #   asked
      def ruby_bytes = (ledger.ruby_bytes unless objects_left_out?)

      # @return [Integer, nil] in use in malloc, beyond what objects report to hold; nil where not every one was asked
      def untracked_bytes
        in_use = detail(:malloc, :in_use_bytes)
        held = ledger.held_by_objects_bytes unless objects_left_out?
        in_use && held && [in_use - held, 0].max
      end

      # @return [Boolean] whether the process runs this series of Ruby, "3.3" for instance
      def ruby?(series) = ledger.ruby.start_with?("#{series}.")

      # @return [Integer] by how much Ruby lets malloc grow before it collects garbage: that much is free now and then
      def gc_room = snapshot.gc.values_at(:malloc_increase_bytes_limit, :oldmalloc_increase_bytes_limit).compact.sum

      # @return [Integer, nil] pages without an object that Ruby counts among those in use
      def hidden_empty_bytes = ruby_heap.hidden_empty_pages && (ruby_heap.hidden_empty_pages * ruby_heap.page_bytes)

      # @return [Integer, nil] bytes of the pages that compaction empties or that Ruby keeps empty; without
      #   hidden_empty_bytes
      def compactable_bytes
        return unless ruby_heap.compactable_bytes

        [ruby_heap.compactable_bytes - (hidden_empty_bytes || 0), 0].max + ruby_heap.empty_bytes
      end

      # @return [Range, String] what the documented compaction returns of them, or why that cannot be predicted
      def compaction
        return "#{compaction_refusal}." if compaction_refusal

        range = @forecast.range
        return "What compaction returns cannot be predicted: #{@forecast.reason}." unless range

        least, most = range.minmax.map { |bytes| [bytes - (returned_empty_bytes || 0), 0].max }
        least..most
      end

      # @return [String, nil] why this Ruby's heap is never compacted
      def compaction_refusal = RubyHeap.compaction_refusal(ruby_heap.ruby)

      # @return [Integer] the part of what a compaction empties that Ruby keeps because of a setting
      def kept_compactable_bytes = @forecast.kept_by_setting(ruby_heap.compactable_bytes) - kept_empty_bytes

      # @return [Integer] the part of the pages without an object that Ruby keeps because of that setting
      def kept_empty_bytes = @forecast.kept_by_setting(hidden_empty_bytes || 0)

      # @return [Integer, nil] the part of the pages without an object that garbage collections return
      def returned_empty_bytes = hidden_empty_bytes && @forecast.returned_of_empty(hidden_empty_bytes)

      # --- The allocator

      # @return [Integer, nil] resident in malloc, but in no used block
      def unused_bytes
        in_use = detail(:malloc, :in_use_bytes)
        in_use && [bytes(:malloc) - in_use, 0].max
      end

      # @return [Array<Allocator::Other>] those that could serve malloc
      def idle_allocators = allocator.others.select { |other| other.prefix.empty? }

      # @return [Array<Allocator::Other>] those that serve one library only
      def private_allocators = allocator.others - idle_allocators

      # @return [String, nil] the allocator in LD_PRELOAD that is not in this process
      def missing_preload
        name = environment.variables[:LD_PRELOAD]&.slice(/jemalloc|mimalloc|tcmalloc/)
        name unless name.nil? || [allocator, *allocator.others].any? { |found| found.name.name == name }
      end

      # @param ids [Array<Symbol>]
      # @return [Array<Lint::Problem>] the settings' problems with these ids
      def problems(ids) = lint.problems.select { |problem| ids.include?(problem.id) }

      # --- glibc

      # @return [Integer, nil] what malloc_trim returns
      def trimmable_bytes = detail(:malloc, :trimmable_bytes)

      # @return [Integer, nil] free in a heap, by the row's id, but in parts of pages that no trim returns
      def unreturnable_bytes(heap)
        free = %i[free thread_caches top].map { |id| bytes(:malloc, heap, id) }
        trimmable = detail(:malloc, heap, :free, :trimmable_bytes)
        [free.sum - trimmable, 0].max if trimmable && free.all?
      end

      # @return [Integer] beside the main heap
      def glibc_arenas = detail(:malloc, :arenas, :arenas) || 0

      # --- jemalloc

      # @return [Integer, nil] a total of jemalloc's
      def jemalloc(name) = snapshot.jemalloc&.[](name)

      # @return [Range, nil] how much of jemalloc's dirty pages is resident, at least and at most: jemalloc also counts
      #   pages that were never written to, which are among those that are counted but not resident
      def dirty_bytes
        dirty = bytes(:malloc, :dirty)
        dirty && ([dirty + (bytes(:malloc, :not_resident) || 0), 0].max..[dirty, bytes(:malloc)].min)
      end

      # @return [Boolean] whether a background thread purges
      def background_threads? = (jemalloc(:background_threads) || 0).positive?

      # @return [Boolean] whether background threads are set to run, but did not survive the fork
      def background_threads_lost? = environment.forked? && setting(:background_thread) == true && !background_threads?

      # @return [Integer] freed pages in arenas without a thread, where nothing returns them
      def stranded_dirty_bytes = dirty_in { |arena| arena[:threads]&.zero? }

      # @return [Integer] freed pages in arenas that keep them for ever
      def undecaying_dirty_bytes = dirty_in { |arena| arena[:dirty_decay_ms] == -1 }

      # @return [Array<Fragmentation::Stuck>] the block sizes that most memory is stuck in
      def stuck = evidence.fragmentation&.stuck&.first(3) || []

      # @return [Boolean, nil] whether pages were purged between the two snapshots; nil where there was no second one
      def purging_now?
        later = evidence.second_snapshot&.jemalloc
        later && later[:dirty_npurge] > jemalloc(:dirty_npurge)
      end

      # @return [Boolean] whether the process was forked, has hardly worked since, and returns no pages: a worker that
      #   serves requests frees pages all the time, and looks as idle between two requests
      def idle_since_fork?
        environment.forked? && purging_now? == false && (environment.cpu_seconds || 0) < SOME_WORK_SECONDS
      end

      # @return [Boolean] whether pages were purged since the earlier diagnosis
      def purged_since_earlier? = purged_since_earlier&.positive? || false

      # @return [Boolean] whether none were, though all should have been
      def decay_overdue?
        purged_since_earlier&.zero? && seconds * 1000 > setting(:dirty_decay_ms) &&
          [earlier.jemalloc(:pdirty), jemalloc(:pdirty)].min >= jemalloc(:pdirty) / 2
      end

      # --- What changed

      # @return [String, nil] why this diagnosis cannot be compared with the earlier one
      def incomparable
        return "no earlier diagnosis was given" unless earlier
        unless earlier.ledger.pid == ledger.pid && earlier.environment.started == environment.started
          return "the earlier diagnosis is of another process"
        end

        "the earlier diagnosis is not earlier" unless earlier.ledger.at < ledger.at
      end

      # @yieldparam figures [Figures]
      # @yieldreturn [Integer, nil]
      # @return [Integer, nil] by how much something grew since the earlier diagnosis; 0 where it fell
      def growth
        before = yield(earlier)
        now = yield(self)
        before && now && [now - before, 0].max
      end

      # @return [Float] since the earlier diagnosis
      def seconds = (ledger.at - earlier.ledger.at).to_f

      # @return [Integer, nil] what the parent's thread caches held before the fork, less what this process's hold
      def stranded_cache_bytes
        return unless earlier && earlier.ledger.pid == environment.parent_pid

        before = earlier.jemalloc(:tcache_bytes)
        before && [before - jemalloc(:tcache_bytes), 0].max
      end

      # --- The container

      # @return [Integer, nil]
      def limit_bytes = cgroup.limit_bytes

      # @return [Integer, nil] what the kernel cannot reclaim without killing
      def working_set_bytes = cgroup.working_set_bytes || cgroup.current_bytes

      # @return [Integer, nil]
      def oom_kills = cgroup.events&.[](:oom_kill)

      # @return [Float, nil] the working set's share of the limit
      def fullness = (working_set_bytes.fdiv(limit_bytes) if working_set_bytes && limit_bytes&.positive?)

      # @return [Integer, nil] how many such processes the limit allows, if all share what this one shares
      def capacity
        shared = process_memory.shared_bytes
        own = process_memory.uss_bytes
        (cgroup.limit_bytes - shared) / own if cgroup.limit_bytes && shared && own&.positive?
      end

      private

      def objects_left_out? = ledger.reasons.key?(:held_by_objects_bytes)

      def dirty_in(&block) = (evidence.arenas || []).select(&block).sum { |arena| arena[:dirty_bytes] || 0 }

      # Pages; nil where the two diagnoses cannot be compared.
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
