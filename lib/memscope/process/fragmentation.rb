# frozen_string_literal: true

require_relative "allocator"
require_relative "ledger"
require_relative "ruby_heap"
require_relative "snapshot"
Memscope::Loading.unit :SizeClasses

module Memscope
  # How much more memory the allocator holds than is allocated, as named ratios, and how much of it can be returned.
  #
  # A purge (`Memscope.purge`) returns "purgeable" memory at once; compaction of Ruby's heap returns "compactable"
  # memory. "Stuck" memory stays until the last allocation in its slab, or the allocation next to a free block, is
  # freed, or the process ends.
  class Fragmentation < Reading
    # Free regions of one size class.
    class Stuck < Record
      # @return [Integer] size of one region
      field :size_bytes, :bytes, null: false, identity: true
      # @return [Integer] free memory that nothing returns while its neighbours live. Under jemalloc an upper bound:
      #   pages of a slab that were never touched are not resident
      field :stuck_bytes, :bytes, null: false
      # @return [Float] regions in use as a share of all regions
      field :utilisation, :number, null: false
    end

    # @return [Symbol] the allocator that serves malloc
    field :allocator, :symbol, null: false
    # @return [Integer, nil] jemalloc's epoch, the same for all its numbers unless a reason says otherwise
    field :epoch, :count
    # @return [Integer, nil] resident memory of the process
    field :rss_bytes, :bytes
    # @return [Integer, nil] allocated; thread caches are included under jemalloc, and not under glibc
    field :allocated_bytes, :bytes
    # @return [Integer, nil] jemalloc: whole pages with allocations in them
    field :active_bytes, :bytes
    # @return [Integer, nil] jemalloc: metadata, active and dirty pages, an upper bound; glibc: resident part of
    #   malloc's memory
    field :resident_bytes, :bytes
    # @return [Integer, nil] resident free pages that the allocator can return now
    field :purgeable_bytes, :bytes
    # @return [Integer, nil] lower bound of bytes in pages of Ruby's heap that are empty or that compaction empties; nil
    #   if pins are unknown
    field :compactable_min_bytes, :bytes
    # @return [Integer, nil] upper bound of bytes in pages that are empty or that compaction empties;
    #   RubyHeap::CompactionForecast estimates how many Ruby returns
    field :compactable_bytes, :bytes
    # @return [Integer, nil] free memory that nothing returns while its neighbours live. Under jemalloc an upper
    #   bound: pages of a slab that were never touched are not resident
    field :stuck_bytes, :bytes
    # @return [Array<Stuck>] by size class, the largest first; empty under glibc, which has no size classes
    field :stuck, [Stuck], null: false

    # @return [Float, nil] slack inside of pages: 1.0 is none
    def active_to_allocated = RubyHeap.ratio(active_bytes, allocated_bytes)

    # @return [Float, nil] free pages and metadata on top of active ones: 1.0 is none
    def resident_to_active = RubyHeap.ratio(resident_bytes, active_bytes)

    # @return [Float, nil] RSS of the process divided by resident bytes of its allocator; below 1 if active pages were
    #   never touched
    def rss_to_resident = RubyHeap.ratio(rss_bytes, resident_bytes)

    class << self
      # @return [Fragmentation] with the figures that this allocator has statistics for
      def read
        case Allocator.read.name
        when :jemalloc then of_jemalloc(*of_one_epoch, RubyHeap.read)
        when :glibc then of_glibc(Ledger.read(deep: true), RubyHeap.read)
        else of_unknown(Snapshot.read, RubyHeap.read)
        end
      end

      # The readings for of_jemalloc, taken once more if the epoch was advanced elsewhere between the two.
      #
      # @api private
      # @return [Array(Snapshot, SizeClasses)]
      def of_one_epoch
        pair = nil
        2.times do
          pair = [Snapshot.read, SizeClasses.capture(Native.size_classes(nil, false))]
          break if pair.first.jemalloc&.fetch(:epoch) == pair.last.epoch
        end
        pair
      end

      # @param snapshot [Snapshot]
      # @param classes [SizeClasses] of the same epoch; if not, a reason says that it differs
      # @param heap [RubyHeap]
      # @return [Fragmentation]
      def of_jemalloc(snapshot, classes, heap)
        totals = snapshot.jemalloc || {}
        build(:jemalloc, [snapshot, classes, heap],
              **totals.slice(:epoch, :allocated_bytes, :active_bytes, :resident_bytes),
              purgeable_bytes: totals[:page_bytes]&.*(totals.values_at(:pdirty, :pmuzzy).compact.sum),
              stuck_bytes: classes.slack_bytes, stuck: stuck_in(classes),
              reasons: totals[:epoch] == classes.epoch ? {} : { epoch: :epochs_mixed })
      end

      # @param ledger [Ledger] a deep one
      # @param heap [RubyHeap]
      # @return [Fragmentation]
      def of_glibc(ledger, heap)
        malloc = ledger.row(:malloc)
        trimmable = malloc&.detail&.fetch(:trimmable_bytes, nil)
        free = malloc&.each_leaf&.select { |row| %i[free top].include?(row.id) }&.sum(&:bytes)
        build(:glibc, [ledger, heap],
              allocated_bytes: malloc&.detail&.fetch(:in_use_bytes, nil), resident_bytes: malloc&.bytes,
              purgeable_bytes: trimmable, stuck_bytes: trimmable && [free - trimmable, 0].max, stuck: [],
              reasons: { active_bytes: "glibc counts no pages", stuck: "glibc's free blocks have no size classes" })
      end

      # @param snapshot [Snapshot]
      # @param heap [RubyHeap]
      # @return [Fragmentation]
      def of_unknown(snapshot, heap)
        build(Allocator.read.name, [snapshot, heap], stuck: [], reasons: { allocator: :statistics_unread })
      end

      private

      # The first reading has the RSS, the last is of Ruby's heap.
      def build(allocator, readings, reasons: {}, **fields)
        capture({ allocator: allocator, rss_bytes: readings.first.rss_bytes, **fields, **compactable(readings.last),
                  reasons: { **own_reasons(readings), **reasons }, cost: Cost.sum(readings.map(&:cost)) })
      end

      # Adds the empty pages that Ruby keeps: they are returned together with those that compaction empties.
      def compactable(heap)
        %i[compactable_min_bytes compactable_bytes].to_h { |name| [name, heap.public_send(name)&.+(heap.empty_bytes)] }
      end

      def own_reasons(readings)
        heap = readings.last.reasons
        kept = %i[rss_bytes jemalloc classes deep extension compactable_bytes]
        { **readings.map(&:reasons).reduce({}, :merge).slice(*kept),
          compactable_min_bytes: heap.values_at(:compactable_min_bytes, :pinned_pages_max).compact.first }.compact
      end

      def stuck_in(classes)
        partly_used = classes.select { |size_class| size_class.slab_bytes && size_class.slack_bytes&.positive? }
        partly_used.sort_by { |size_class| -size_class.slack_bytes }.map do |size_class|
          { size_bytes: size_class.size_bytes, stuck_bytes: size_class.slack_bytes,
            utilisation: size_class.utilisation }
        end
      end
    end
  end
end
