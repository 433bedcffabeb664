# frozen_string_literal: true

require_relative "../../value/quantity"

module Memscope
  module Doctor
    # What keeps Ruby's garbage collector from running, or makes it keep memory.
    #
    # @api private
    class Collector
      include Quantity

      # Of a traced object: its record, of seven words, and its entry in the table (objspace's allocation_info).
      TRACED_BYTES = 96
      private_constant :TRACED_BYTES

      # @param evidence [Diagnosis::Evidence]
      def initialize(evidence)
        @heap = evidence.ruby_heap
        @gc = evidence.snapshot.gc
        @environment = evidence.lint.environment
      end

      # @return [Array(String, String), nil] the call that switched it or its major collections off, and the one that
      #   switches it on
      def off
        return ["GC.disable", "GC.enable"] if @heap.gc_disabled?
        return unless @environment.major_collections? == false

        ["GC.config(rgengc_allow_full_mark: false)", "GC.config(rgengc_allow_full_mark: true)"]
      end

      # @return [Array<String>] the variables that explain at least half of the pages without any object
      def keepers
        empty = @heap.hidden_empty_pages.to_i + @heap.empty_pages.to_i
        kept = @heap.free_slots_floor.to_i * @heap.pages.to_i / [@heap.slots.to_i, 1].max
        @environment.raised(:pages).reject { |text| text.include?("INIT_SLOTS") && kept < empty / 2 }
      end

      # @return [Integer] bytes of records, at most; 0 unless allocations are traced
      def traced_bytes = @environment.allocation_tracing? ? @heap.live_slots * TRACED_BYTES : 0

      # @return [String] a sentence: what Ruby goes by before it makes a full GC
      def next_full
        return "None comes by itself: #{off.first} was called." if off
        return "The next GC that Ruby makes is a full one." if due?

        variables = @environment.raised(:malloc)
        raised = "; #{variables.join(' and ')} raised the limit" if variables.any?
        old = " or #{count(@gc[:old_objects_limit])} objects are old (now #{count(@gc[:old_objects])})" if counts_old?
        "The next one comes when malloc has grown by #{size(@gc[:oldmalloc_increase_bytes_limit])}#{old}#{raised}."
      end

      private

      def counts_old? = @gc[:old_objects_limit] && @gc[:old_objects]

      def due?
        (@gc[:oldmalloc_increase_bytes] || 0) >= @gc[:oldmalloc_increase_bytes_limit] ||
          (counts_old? && @gc[:old_objects] >= @gc[:old_objects_limit])
      end
    end
  end
end
