# frozen_string_literal: true

module Memscope
  class RubyHeap < Reading
    # Collects garbage before a reading, and bounds the garbage that there is afterwards.
    # @api private
    module Garbage
      # Assumed upper bound of the malloc memory that Ruby does not count, in bytes per object on average. Measured:
      # Psych.parse allocates 19 objects, and 67 KiB that Ruby does not count, which is 3,600 bytes per object.
      UNCOUNTED = 8_192
      # True if this Ruby's garbage collector reports how many slots the last GC marked.
      COUNTED = %i[heap_marked_slots heap_live_slots malloc_increase_bytes].all? { |name| GC.stat.key?(name) }

      # Call right after `collect`, before the program drops any of the survivors. Makes no objects.
      # @return [Integer, nil] an upper bound on the bytes allocated since that Ruby counts, 0 in a copy, in which no
      #   other thread runs. nil if another GC has run
      def self.unjudged_bytes(native = Native)
        return 0 unless native.own?
        return unless COUNTED && GC.latest_gc_info(:state) != :marking && GC.latest_gc_info(:major_by)

        slots = GC.stat(:heap_live_slots) - GC.stat(:heap_marked_slots) # while the GC sweeps, garbage counts as live
        (UNCOUNTED * [slots, 0].max) + GC.stat(:malloc_increase_bytes)
      end

      # Runs a major GC as GC.start does, and returns the body of a Ledger::Collected. A GC of a copy changes neither
      # the process nor what it shares.
      def self.collect(native = Native)
        return { pause_us: native.collect_garbage } unless native.own?

        shared = Native.inherited
        before = ProcessMemory.read.rss_bytes
        began = Cost.now
        GC.start
        pause = Cost.now - began
        after = ProcessMemory.read.rss_bytes
        unshared = Native.unshared(shared) if shared.is_a?(String) # else `shared` is the reason
        { pause_us: pause, returned_bytes: before && after && (before - after),
          unshared_bytes: (unshared if unshared.is_a?(Integer)) }
      end
    end
  end
end
