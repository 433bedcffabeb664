# frozen_string_literal: true

require_relative "../ruby_heap"

module Memscope
  module Purge
    # Gives back pages of Ruby's heap: moves the objects together, and makes the GC free the pages that this empties.
    #
    # Compaction alone returns little, for the GC keeps empty pages and frees but a part of them at a time. The passes
    # are, each until it returns less than 1/200 of the pages there were:
    #
    # - Process.warmup, where Ruby has it (3.3 and newer). It also makes every live object old, so that only a major GC
    #   finds it when it dies, and gives back free malloc memory under glibc.
    # - Otherwise GC.compact once, then GC.start. Ruby frees pages only while more than free_slots_max_ratio of its
    #   slots are free (0.65): it returns nothing of a heap that is more than 35 % full, however fragmented it is.
    #   Started with RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO=0.25 (KEEP_LESS), it returns pages of such a heap too.
    #
    # Ruby 3.1.0 to 3.1.3 and 3.2.0 can crash in GC.compact (ruby/ruby#7081): there nothing is compacted.
    #
    # A pass is a full GC and holds the GVL: 0.1 to 0.8 s at a heap of 512 MB. Mostly there are 5 to 12 passes on Ruby
    # 3.1, 2 on 3.3, and 5 to 11 on 3.4. Other threads run in between.
    module Compaction
      # What the passes will return.
      class Forecast < Record
        # @return [Integer, nil] 0 where nothing is promised; nil where it cannot be said
        field :min_bytes, :bytes
        # @return [Integer, nil] at most RATIO times the minimum, unless it is SMALL
        field :max_bytes, :bytes
        # @return [String, nil] why it cannot be said
        field :reason, :string

        # @return [Range<Integer>, nil]
        def range = max_bytes && (min_bytes..max_bytes)
      end

      # What they have returned.
      class Outcome < Record
        # @return [Array<String>] "warmup", "compact" and "gc", in order
        field :passes, :list, null: false
        # @return [Integer] heap pages that Ruby had allocated
        field :pages_before, :count, null: false
        # @return [Integer]
        field :pages_after, :count, null: false
        # @return [Float] with the GVL held, but for what other threads did between the passes
        field :wall_ms, :number, null: false
      end

      # The widest range that is a forecast, as upper/lower.
      RATIO = 1.5

      # The share of the heap up to which a forecast makes no promise: 0 to that.
      SMALL = 0.05

      # A pass that returns less than this share of the pages is the last.
      LAST_PASS = 0.005

      # The last pass anyway.
      PASSES = 30

      # The free_slots_max_ratio that is worth setting before Ruby 3.2. Ruby ignores one that is not above
      # RUBY_GC_HEAP_FREE_SLOTS_MIN_RATIO, which is 0.20 (gc.c, ruby_gc_set_params).
      KEEP_LESS = 0.25

      class << self
        # @return [String, nil] why this process cannot compact its heap; nil where it can
        def missing
          return "this Ruby cannot compact its heap" unless GC.respond_to?(:compact)
          return RubyHeap.compaction_refusal if RubyHeap.compaction_refusal

          "other Ractors are alive, and beside them GC.compact can crash before Ruby 3.3" if other_ractors_in_the_way?
        end

        # Runs the passes. Not in a trap handler of a program that may be in the middle of anything: it stops the
        # program for as long as it takes.
        #
        # @return [Outcome]
        # @raise [NotImplementedError] where it cannot be done, which says why
        def run
          reason = missing
          raise NotImplementedError, reason if reason

          started = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
          before = allocated_pages
          passes = Process.respond_to?(:warmup) ? warm_up(before) : compact(before)
          wall = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond) - started
          Outcome.capture({ passes: passes, pages_before: before, pages_after: allocated_pages,
                            wall_ms: wall.round(1) })
        end

        # What `run` would return to the kernel: bytes of heap pages, resident as they are unless swapped out.
        #
        # No forecast is made where upper and lower bound are more than RATIO apart: on Ruby 3.1 when more than about
        # half of the pages hold objects that cannot be moved; where many live slots are young, so that they may be
        # garbage (a reading with `collect: true` settles that); and for Ruby 3.2 and 4.1, which were not measured.
        #
        # @param heap [RubyHeap] best one read with `collect: true`
        # @return [Forecast]
        def forecast(heap)
          Estimate.new(heap).forecast
        end

        # What free_slots_max_ratio keeps of pages that are empty, or will be when they are compacted, and KEEP_LESS
        # would not.
        #
        # @param heap [RubyHeap]
        # @param bytes [Integer] of these pages
        # @return [Integer] bytes; 0 where Ruby does not go by that, or it is not known to
        def kept_by_setting(heap, bytes)
          Estimate.new(heap).kept_by_setting(bytes)
        end

        # What a GC returns of empty pages, without a compaction.
        #
        # @param heap [RubyHeap]
        # @param bytes [Integer] of these pages
        # @return [Integer] bytes
        def returned_of_empty(heap, bytes)
          Estimate.new(heap).returned_of_empty(bytes)
        end

        private

        def other_ractors_in_the_way? = !Process.respond_to?(:warmup) && Ractor.count > 1

        def allocated_pages = GC.stat(:heap_allocated_pages)

        def warm_up(before) = repeat("warmup", before) { Process.warmup }

        def compact(before)
          GC.compact
          ["compact", *repeat("gc", before) { GC.start }]
        end

        def repeat(name, before)
          last = before
          passes = []
          while passes.size < PASSES
            yield
            passes << name
            now = allocated_pages
            break if last - now < before * LAST_PASS

            last = now
            Thread.pass
          end
          passes
        end
      end

      # The arithmetic of one forecast, in pages.
      #
      # @api private
      class Estimate
        # Slots that Ruby 3.4 and newer keep free in each heap (GC_HEAP_INIT_SLOTS).
        INIT_SLOTS = 10_000

        def initialize(heap)
          @heap = heap
          @version = heap.ruby.split(".").first(2).map(&:to_i)
        end

        def forecast
          return unknown(missing) if missing

          least, most = bounds(garbage: !@heap.collected?)
          return known(0, most) if small?(most)
          return known(least, most) if narrow?(least, most)

          unknown(too_wide)
        end

        def kept_by_setting(bytes)
          return 0 unless by_ratio?

          [returnable(pages(bytes), KEEP_LESS) - returnable(pages(bytes)), 0].max * @heap.page_bytes
        end

        def returned_of_empty(bytes) = by_ratio? ? returnable(pages(bytes)) * @heap.page_bytes : bytes

        private

        # What was measured, and all that the rule needs is known.
        def by_ratio?
          (@version <=> [3, 2]).negative? && @heap.pages&.positive? && @heap.slots&.positive? &&
            ![@heap.free_slots_max_ratio, @heap.free_slots_floor, @heap.allocatable_pages].include?(nil)
        end

        def returnable(pages, ratio = @heap.free_slots_max_ratio)
          (@heap.pages - kept_by_ratio(@heap.live_slots, ratio)).clamp(0, pages)
        end

        def known(least, most) = answer(min_bytes: least * @heap.page_bytes, max_bytes: most * @heap.page_bytes)

        def unknown(reason) = answer(reason: reason)

        def answer(**given) = Forecast.capture({ min_bytes: nil, max_bytes: nil, reason: nil, **given })

        def missing
          refused = RubyHeap.compaction_refusal(@heap.ruby)
          return refused if refused
          return "no heap pages could be listed" unless @heap.pages&.positive? && @heap.slot_sizes.any?
          return @heap.reasons.fetch(:pinned_pages_max, "pins are not known") unless @heap.compactable_min_bytes

          "what Ruby #{@heap.ruby} returns was not measured" if @version == [3, 2] || (@version <=> [4, 1]) >= 0
        end

        def small?(most) = most <= @heap.pages * SMALL

        def narrow?(least, most) = most <= least * RATIO

        def too_wide
          least, most = bounds(garbage: false)
          return garbage if small?(most) || narrow?(least, most)
          return pinned if @heap.pinned_pages_max > @heap.pages / 4

          "Ruby #{@heap.ruby} keeps free slots, and returns little more than nothing or pages of unknown slot sizes"
        end

        def garbage
          "#{@heap.live_slots - @heap.old_objects} of #{@heap.live_slots} live slots may be garbage: read with " \
            "collect: true"
        end

        def pinned
          "#{@heap.pinned_pages_min} to #{@heap.pinned_pages_max} of #{@heap.pages} pages hold objects that cannot " \
            "be moved"
        end

        # Least and most pages returned. Garbage can only add to what is returned: pages that it fills, and in which it
        # is pinned.
        def bounds(garbage:)
          live = garbage ? @heap.old_objects : @heap.live_slots
          most = garbage ? @heap.pages - pages_for(live) : pages(@heap.compactable_bytes)
          least = pages(@heap.compactable_min_bytes)
          least, most = by_rule(least, most, live)
          [[least, 0].max, [most, 0].max].map { |count| count + (@heap.empty_pages || 0) }
        end

        def by_rule(least, most, live)
          case @version <=> [3, 3]
          when -1 then [[least, @heap.pages - kept_by_ratio(@heap.live_slots)].min - last_passes(3),
                        [most, @heap.pages - kept_by_ratio(live)].min]
          when 0 then [least - last_passes(1), most]
          else [least - kept_by_count - last_passes(2), most]
          end
        end

        # What passes after the last one would still return: each returns at least one of so many pages that are left.
        def last_passes(count) = (@heap.pages * LAST_PASS * count).ceil

        def pages(bytes) = bytes / @heap.page_bytes

        # In pages of the smallest slots, which have most.
        def pages_for(slots) = slots.fdiv(most_slots).ceil

        def most_slots = @heap.slot_sizes.map { |size| slots_each(size) }.max

        def slots_each(size) = size.slots / size.pages

        # gc.c of Ruby 3.1, gc_marks_finish: it frees pages while more slots are free than that share of all, those of
        # the pages it may still allocate included, and than that number.
        def kept_by_ratio(live, ratio = @heap.free_slots_max_ratio)
          wanted = [live / (1 - ratio), live + @heap.free_slots_floor].max
          (wanted * @heap.pages / @heap.slots).floor - @heap.allocatable_pages
        end

        # gc/default/default.c of Ruby 3.4, gc_marks_finish: it frees pages while more slots are free than a number for
        # all heaps together, whatever their size, and at a time as many as these slots would fill of the smallest.
        def kept_by_count
          slots = (INIT_SLOTS * @heap.slot_sizes.size) + (last_passes(1) * most_slots)
          @heap.slot_sizes.sort_by { |size| -size.slot_size }.sum do |size|
            kept = [pages(size.compactable_bytes), slots / slots_each(size)].min
            slots -= kept * slots_each(size)
            kept
          end
        end
      end
      private_constant :Estimate
    end
  end
end
