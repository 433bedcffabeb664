# frozen_string_literal: true

require "forwardable"
require_relative "../../process/ruby_heap/compaction_forecast"
require_relative "changes"
require_relative "collector"
require_relative "malloc_figures"

module Memscope
  module Doctor
    # The numbers that the rules use, each taken or derived from the evidence; nil if the evidence lacks it.
    #
    # @api private
    class Figures
      extend Forwardable
      include Changes
      include MallocFigures

      # The ledger's reasons for which figures are missing.
      MISSING = %i[extension rss_bytes malloc deep objects ractors garbage].freeze
      # The most that malloc needs for what a just-in-time compiler asks for, in many small blocks: with YJIT of Ruby
      # 4.0, 1.38 to 1.43 under glibc and 1.08 under jemalloc.
      JIT_BLOCKS = 1.5
      # The figures of other readings without which a rule cannot judge.
      JUDGED = %i[slots live_slots hidden_empty_pages compactable_bytes swap_bytes anonymous_huge_bytes
                  working_set_bytes].freeze
      private_constant :MISSING, :JIT_BLOCKS, :JUDGED

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

      # @return [String, nil] which objects were not asked for their sizes, and why. If any was not, ruby_bytes is a
      #   lower bound, and untracked_bytes an upper bound
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
    end
  end
end
