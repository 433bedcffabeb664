# frozen_string_literal: true

module Memscope
  module Purge
    # Returns pages of Ruby's heap: moves the objects together, and makes the GC free the pages that become empty.
    #
    # Compaction alone returns little: the GC keeps empty pages, and frees only some of them at a time. So there are
    # several passes, until a pass returns less than 1/200 of the pages that the heap had before the first pass:
    #
    # - Process.warmup, if Ruby has it (3.3 and newer). It also makes every live object old, so that only a major GC can
    #   free such an object; under glibc, it also trims free malloc memory.
    # - Otherwise GC.compact once, then GC.start. Ruby frees pages only while more than free_slots_max_ratio (0.65 by
    #   default) of its slots are free: it returns no page of a heap that is more than 35 % full, however fragmented
    #   that heap is. With RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO=0.25, Ruby returns pages of such a heap too.
    #
    # Ruby 3.1.0 to 3.1.3 and 3.2.0 can crash in GC.compact (ruby/ruby#7081): memscope never compacts there.
    #
    # A pass is a full GC and holds the GVL: 0.1 to 0.8 s for a heap of 512 MB. Usually there are 5 to 12 passes on Ruby
    # 3.1, 2 on 3.3, and 5 to 11 on 3.4. Other threads run between two passes.
    module Compaction
      # The maximum number of passes.
      PASSES = 30

      class << self
        # @return [String, nil] why this process cannot compact its heap; nil if it can
        def missing
          return "this Ruby cannot compact its heap" unless GC.respond_to?(:compact)
          return RubyHeap.compaction_refusal if RubyHeap.compaction_refusal

          "other Ractors are alive: before Ruby 3.3, GC.compact can crash in that case" if other_ractors_in_the_way?
        end

        # Runs the passes. Do not call it in a trap handler unless the program is idle: the program stops for as long as
        # the passes take.
        #
        # @return [Array<String>] the passes that ran, in order: "warmup", "compact", "gc"
        # @raise [NotImplementedError] if this process cannot compact its heap, with the reason
        def run
          reason = missing
          raise NotImplementedError, reason if reason

          before = allocated_pages
          return repeat("warmup", before) { Process.warmup } if Process.respond_to?(:warmup)

          GC.compact
          ["compact", *repeat("gc", before) { GC.start }]
        end

        private

        def other_ractors_in_the_way? = !Process.respond_to?(:warmup) && Ractor.count > 1

        def allocated_pages = GC.stat(:heap_allocated_pages)

        def repeat(name, before)
          last = before
          1.upto(PASSES) do |pass|
            yield
            now = allocated_pages
            enough = last - now < before * RubyHeap::CompactionForecast::LAST_PASS
            return [name] * pass if enough || pass == PASSES

            last = now
            Thread.pass
          end
        end
      end
    end
  end
end
