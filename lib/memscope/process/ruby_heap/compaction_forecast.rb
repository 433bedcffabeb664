# frozen_string_literal: true

module Memscope
  class RubyHeap < Reading
    # How much of a heap the passes of Purge::Compaction will return to the kernel: bytes of heap pages, which are
    # resident unless swapped out.
    #
    # There is no forecast for Ruby 3.2 or for 4.1 and newer, which were not measured, nor if the upper bound exceeds
    # RATIO times the lower bound. The bounds are that far apart on Ruby 3.1 if more than about half of the pages hold
    # objects that cannot be moved, and on any Ruby if many live slots are young and may be garbage (a reading with
    # `collect: true` has no such slots).
    #
    # Without `collect: true`, old objects count as live. Which of them are garbage is known only after a full GC, such
    # as the one that a compaction begins with: if many are garbage, more than the upper bound is returned.
    # @api private
    class CompactionForecast
      # A forecast's upper bound is at most this many times its lower bound.
      RATIO = 1.5
      # If the upper bound is at most this share of the heap, the lower bound of the forecast is 0.
      SMALL = 0.05
      # A pass that returns less than this share of the pages is the last.
      LAST_PASS = 0.005
      # Slots that Ruby 3.4 and newer keep free in each heap (GC_HEAP_INIT_SLOTS).
      INIT_SLOTS = 10_000

      def initialize(heap)
        @heap = heap
        @version = heap.ruby.split(".").first(2).map(&:to_i)
      end

      # In bytes, or nil for a `reason`.
      def range = (narrow(*bounds(garbage: !@heap.collected?)) unless missing)

      def reason = missing || (too_wide unless range)

      # How many bytes of the empty pages a GC returns without a compaction.
      def returned_of_empty(bytes)
        return bytes unless by_ratio?

        (@heap.pages - kept_by_ratio(@heap.live_slots)).clamp(0, pages(bytes)) * @heap.page_bytes
      end

      private

      # True if the measured rule of Ruby 3.1 applies, and all its inputs are known.
      def by_ratio?
        (@version <=> [3, 2]).negative? && @heap.pages&.positive? && @heap.slots&.positive? &&
          ![@heap.free_slots_max_ratio, @heap.free_slots_floor, @heap.allocatable_pages].include?(nil)
      end

      def missing
        refused = RubyHeap.compaction_refusal(@heap.ruby)
        return refused if refused
        return Reasons.sentence(:heap_pages_unlisted) unless @heap.pages&.positive? && @heap.slot_sizes.any?

        return @heap.reasons[:pinned_pages_max] || Reasons.sentence(:pins_unknown) unless @heap.compactable_min_bytes

        Reasons.sentence([:compaction_unmeasured, @heap.ruby]) if @version == [3, 2] || (@version <=> [4, 1]) >= 0
      end

      # The range of these bounds, in bytes, or nil if it is too wide.
      def narrow(least, most)
        small = most <= @heap.pages * SMALL
        least = 0 if small
        (least * @heap.page_bytes)..(most * @heap.page_bytes) if small || most <= least * RATIO
      end

      def too_wide
        id, *numbers =
          if narrow(*bounds(garbage: false))
            [:compaction_of_garbage, @heap.live_slots - @heap.old_objects, @heap.live_slots]
          elsif @heap.pinned_pages_max > @heap.pages / 4
            [:compaction_of_pins, @heap.pinned_pages_min, @heap.pinned_pages_max, @heap.pages]
          else
            [:compaction_by_page, @heap.ruby]
          end
        Reasons.sentence([id, *numbers.map(&:to_s)])
      end

      # Bounds on the number of pages returned. Garbage raises only the upper bound: by the pages that it fills, and
      # those in which it is pinned. Old garbage counts as live.
      def bounds(garbage:)
        live = garbage ? @heap.old_objects : @heap.live_slots
        most = garbage ? @heap.pages - live.fdiv(most_slots).ceil : pages(@heap.compactable_bytes)
        least = pages(@heap.compactable_min_bytes)
        by_rule(least, most, live).map { |count| [count, 0].max + (@heap.empty_pages || 0) }
      end

      def by_rule(least, most, live)
        case @version <=> [3, 3]
        when -1 then [[least, @heap.pages - kept_by_ratio(@heap.live_slots)].min - last_passes(3),
                      [most, @heap.pages - kept_by_ratio(live)].min]
        when 0 then [least - last_passes(1), most]
        else [least - kept_by_count - last_passes(2), most]
        end
      end

      # An upper bound on the number of pages that further passes, after the last one, would still return. Each pass
      # returns at least 1/count of the pages left to return, and the last one returned less than LAST_PASS of the heap,
      # so less than count times LAST_PASS of the heap is left.
      def last_passes(count) = (@heap.pages * LAST_PASS * count).ceil

      def pages(bytes) = bytes / @heap.page_bytes

      # The number of slots on a page of the smallest ones.
      def most_slots = @heap.slot_sizes.map { |size| slots_each(size) }.max

      def slots_each(size) = size.slots / size.pages

      # Pages kept by gc.c of Ruby 3.1, gc_marks_finish: it frees pages while the free slots exceed both
      # free_slots_max_ratio of all slots (including the slots of pages that it may still allocate) and
      # free_slots_floor.
      def kept_by_ratio(live)
        wanted = [live / (1 - @heap.free_slots_max_ratio), live + @heap.free_slots_floor].max
        (wanted * @heap.pages / @heap.slots).floor - @heap.allocatable_pages
      end

      # Pages kept by gc/default/default.c of Ruby 3.4, gc_marks_finish: it frees pages while the free slots of all
      # heaps together, whatever their size, exceed one limit. Each time, it frees as many pages as the excess would
      # fill if all its slots were of the smallest size.
      def kept_by_count
        slots = (INIT_SLOTS * @heap.slot_sizes.size) + (last_passes(1) * most_slots)
        @heap.slot_sizes.sort_by { |size| -size.slot_size }.sum do |size|
          kept = [pages(size.compactable_bytes), slots / slots_each(size)].min
          slots -= kept * slots_each(size)
          kept
        end
      end
    end
  end
end
