# frozen_string_literal: true

require_relative "../process_memory"
require_relative "../ruby_heap"

module Memscope
  class RubyHeap < Reading
    # What is known of garbage without a heap graph: an upper bound of it, and nothing of it after a collection.
    #
    # Any object may be garbage that the program has let go of since the last major GC, and with it whatever it holds
    # through malloc. Only right after a major GC is less possible: then only what was allocated since, as far as Ruby
    # has counted it.
    #
    # @api private
    module Garbage
      # The most malloc memory, on average, that an object is taken to hold which Ruby does not count, in bytes.
      # Measured: Psych.parse allocates 67 KiB that Ruby does not count, and 19 objects: 3,600 bytes for each.
      UNCOUNTED = 8_192
      # Whether this Ruby's garbage collector reports what the last GC has marked.
      COUNTED = %i[heap_marked_slots heap_live_slots malloc_increase_bytes].all? { |name| GC.stat.key?(name) }
      private_constant :COUNTED

      class << self
        # Makes no objects.
        #
        # @return [Integer, nil] the most that a major GC would free, if the last GC was one; nil if it was not, and so
        #   all that objects hold may be garbage
        def unjudged_bytes
          return unless COUNTED && GC.latest_gc_info(:state) != :marking && GC.latest_gc_info(:major_by)

          slots = GC.stat(:heap_live_slots) - GC.stat(:heap_marked_slots) # while the GC sweeps, garbage counts as live
          (UNCOUNTED * [slots, 0].max) + GC.stat(:malloc_increase_bytes)
        end

        # Runs a major GC as GC.start does.
        #
        # @return [Hash{Symbol => Integer, nil}] the body of a Ledger::Collected
        def collect
          before = ProcessMemory.read
          began = Cost.now
          GC.start
          pause = Cost.now - began
          after = ProcessMemory.read
          { pause_us: pause, returned_bytes: fall(before.rss_bytes, after.rss_bytes),
            unshared_bytes: fall(before.shared_bytes, after.shared_bytes)&.clamp(0, nil) }
        end

        private

        def fall(before, after) = before && after && (before - after)
      end
    end
  end
end
