# frozen_string_literal: true

require_relative "../report/quantity"

module Memscope
  module Doctor
    # What keeps Ruby's garbage collector from running, or makes it keep memory.
    #
    # @api private
    class Collector
      include Report::Quantity

      # Ruby's defaults for the variables that make the GC keep pages, or let malloc grow (gc.c, ruby_gc_params).
      DEFAULTS = {
        pages: { /_INIT_SLOTS\z/ => 10_000, /_INIT_BYTES\z/ => 0, /_HEAP_FREE_SLOTS\z/ => 4_096, /_MIN_RATIO\z/ => 0.2,
                 /_GOAL_RATIO\z/ => 0.4, /_MAX_RATIO\z/ => 0.65 },
        malloc: { /_OLDMALLOC_LIMIT_MAX\z/ => 128 << 20, /_OLDMALLOC_LIMIT\z/ => 16 << 20,
                  /_MALLOC_LIMIT_MAX\z/ => 32 << 20, /_MALLOC_LIMIT\z/ => 16 << 20 }
      }.freeze
      # Of a traced object: its record, of seven words, and its entry in the table (objspace's allocation_info).
      TRACED_BYTES = 96
      private_constant :DEFAULTS, :TRACED_BYTES

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

      # @param kind [Symbol] :pages or :malloc: what they make Ruby keep
      # @return [Array<String>] the environment variables above Ruby's defaults: "NAME=value"
      def variables(kind)
        @environment.variables.filter_map do |name, value|
          default = DEFAULTS.fetch(kind).find { |pattern, _| name.name.match?(pattern) }&.last
          unit = " kmg".index(value[/[kmg]\s*\z/i].to_s.strip.downcase.ljust(1))
          "#{name}=#{value}" if default && value.to_f * (1024**unit) > default
        end
      end

      # @return [Array<String>] the variables that explain at least half of the pages without any object
      def keepers
        empty = @heap.hidden_empty_pages.to_i + @heap.empty_pages.to_i
        kept = @heap.free_slots_floor.to_i * @heap.pages / [@heap.slots, 1].max
        variables(:pages).reject { |text| text.include?("INIT_SLOTS") && kept < empty / 2 }
      end

      # @return [Integer, nil] bytes of the pages without any object that GC.stat hides; if variables keep them, also of
      #   those that it counts
      def empty_bytes
        hidden = @heap.hidden_empty_pages && (@heap.hidden_empty_pages * @heap.page_bytes)
        hidden && (keepers.any? ? hidden + @heap.empty_bytes : hidden)
      end

      # @return [Integer] bytes of records, at most; 0 unless allocations are traced
      def traced_bytes = @environment.allocation_tracing? ? @heap.live_slots * TRACED_BYTES : 0

      # @return [String] a sentence: what Ruby goes by before it makes a full GC
      def next_full
        return "None comes by itself: #{off.first} was called." if off
        return "The next GC that Ruby makes is a full one." if due?

        raised = "; #{variables(:malloc).join(' and ')} raised the limit" if variables(:malloc).any?
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
