# frozen_string_literal: true

Memscope::Loading.unit :SizeClasses

module Memscope
  Record.declare(__FILE__)

  # How much more memory the allocator holds than is allocated, as named ratios, and how much of it can be returned.
  #
  # A purge (`Memscope.purge`) returns "purgeable" memory. "Stuck" memory stays until the last allocation in its slab,
  # or the allocation next to a free block, is freed, or the process ends. RubyHeap shows how much compaction can empty.
  class Fragmentation < Reading
    # @return [Float, nil] slack inside of pages: 1.0 is none
    def active_to_allocated = RubyHeap.ratio(active_bytes, allocated_bytes)

    # @return [Float, nil] free pages and metadata on top of active ones: 1.0 is none
    def resident_to_active = RubyHeap.ratio(resident_bytes, active_bytes)

    # @return [Float, nil] RSS of the process divided by resident bytes of its allocator. Below 1 if active pages were
    #   never touched
    def rss_to_resident = RubyHeap.ratio(rss_bytes, resident_bytes)

    class << self
      # @return [Fragmentation] with the figures that this allocator has statistics for
      def read(native: Native)
        case name = Allocator.read(native: native).name
        when :jemalloc then of_jemalloc(*of_one_epoch(native))
        when :glibc then of_glibc(Ledger.read(deep: true, native: native))
        else build(name, [Snapshot.read(native: native)], stuck: [], reasons: { allocator: :statistics_unread })
        end
      end

      # @api private
      def of_jemalloc(snapshot, classes)
        totals = snapshot.jemalloc || {}
        build(:jemalloc, [snapshot, classes], **totals.slice(:epoch, :allocated_bytes, :active_bytes, :resident_bytes),
              purgeable_bytes: totals[:page_bytes]&.*(totals.values_at(:pdirty, :pmuzzy).compact.sum),
              stuck_bytes: classes.slack_bytes, stuck: stuck_in(classes),
              reasons: totals[:epoch] == classes.epoch ? {} : { epoch: :epochs_mixed })
      end

      private

      # Both are read once more if the epoch was advanced elsewhere between the two.
      def of_one_epoch(native, again: true)
        pair = [Snapshot.read(native: native), SizeClasses.capture(native.size_classes(nil, false))]
        again && pair.first.jemalloc&.fetch(:epoch) != pair.last.epoch ? of_one_epoch(native, again: false) : pair
      end

      def of_glibc(ledger)
        malloc = ledger.row(:malloc)
        allocated, trimmable = malloc&.detail&.values_at(:in_use_bytes, :trimmable_bytes)
        free = malloc&.leaves&.select { |row| %i[free top].include?(row.id) }&.sum(&:bytes)
        build(:glibc, [ledger], allocated_bytes: allocated, resident_bytes: malloc&.bytes, purgeable_bytes: trimmable,
                                stuck_bytes: trimmable && [free - trimmable, 0].max, stuck: [],
                                reasons: { active_bytes: "glibc counts no pages",
                                           stuck: "glibc's free blocks have no size classes" })
      end

      # The first reading has the RSS.
      def build(allocator, readings, reasons: {}, **fields)
        known = readings.map(&:reasons).reduce({}, :merge).slice(:rss_bytes, :jemalloc, :classes, :deep, :extension)
        capture({ allocator: allocator, rss_bytes: readings.first.rss_bytes, **fields, reasons: { **known, **reasons },
                  cost: Cost.sum(readings.map(&:cost)) }, readings.first.envelope)
      end

      def stuck_in(classes)
        partly_used = classes.select { |size_class| size_class.slab_bytes && size_class.slack_bytes&.positive? }
        partly_used.sort_by { |size_class| -size_class.slack_bytes }.map do |one|
          { size_bytes: one.size_bytes, stuck_bytes: one.slack_bytes, utilisation: one.utilisation }
        end
      end
    end
  end
end
