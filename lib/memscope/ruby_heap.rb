# frozen_string_literal: true

require_relative "native"
require_relative "reading"

module Memscope
  # Pages and slots of Ruby's own heap, from a walk of the object space, and what compaction could empty of them.
  #
  # A page is Ruby's (16 KiB before Ruby 3.2, 64 KiB since), not the kernel's. Bytes are those of whole pages, whether
  # resident or not; the ledger's row :ruby_heap has the resident ones. A page that compaction empties is not returned
  # by that alone: Purge::Compaction says what is.
  class RubyHeap < Reading
    # The pages of one slot size.
    class SlotSize < Record
      # @return [Integer] bytes of one slot
      field :slot_size, :bytes, null: false
      # @return [Integer]
      field :pages, :count
      # @return [Integer] those of them without any object, which GC.stat counts as in use
      field :hidden_empty_pages, :count
      # @return [Integer, nil] pages with an object that compaction surely leaves where it is
      field :pinned_pages_min, :count
      # @return [Integer, nil] pages with an object that it may leave where it is
      field :pinned_pages_max, :count
      # @return [Integer]
      field :slots, :count
      # @return [Integer] slots with an object in them, garbage that no GC has found yet included
      field :live_slots, :count
      # @return [Integer]
      field :free_slots, :count
      # @return [Array<Integer>] ten numbers of pages: with less than a tenth of their slots live, less than two
      #   tenths, …, and nine tenths or more
      field :pages_by_tenths, :list
      # @return [Integer, nil] pages that compaction empties even where all that may be pinned is
      field :compactable_min_bytes, :bytes
      # @return [Integer] pages that these live slots would not need if all that is not surely pinned stood side by
      #   side: an upper bound
      field :compactable_bytes, :bytes

      # @return [Symbol] the field that tells it from others of a list
      def self.identity = :slot_size

      # @return [Float, nil] live slots of all slots; nil without slots
      def occupancy = RubyHeap.ratio(live_slots, slots)
    end

    # @return [Integer] bytes of one page
    field :page_bytes, :bytes
    # @return [Integer] pages with slots in use by a size; those that GC.stat counts as empty are not among them
    field :pages, :count
    # @return [Integer, nil] pages kept without any object, as GC.stat counts them
    field :empty_pages, :count
    # @return [Integer] pages without any object that GC.stat counts as in use; they are among `pages`
    field :hidden_empty_pages, :count
    # @return [Integer, nil] pages with an object that compaction surely leaves where it is: one with a finalizer, or
    #   one that a C extension's object holds without knowing of compaction
    field :pinned_pages_min, :count
    # @return [Integer, nil] pages with an object that it may leave where it is, too: what roots, threads and fibers
    #   refer to, Symbols made at run time, keys and values of Hashes that compare by identity
    field :pinned_pages_max, :count
    # @return [Integer]
    field :slots, :count
    # @return [Integer] garbage that no GC has found yet included
    field :live_slots, :count
    # @return [Integer]
    field :free_slots, :count
    # @return [Array<Integer>] as SlotSize#pages_by_tenths, for all sizes
    field :pages_by_tenths, :list
    # @return [Integer, nil] pages that compaction empties even where all that may be pinned is
    field :compactable_min_bytes, :bytes
    # @return [Integer] an upper bound of what GC.compact can empty: only what is surely pinned stays where it is
    field :compactable_bytes, :bytes
    # @return [Array<SlotSize>]
    field :slot_sizes, [SlotSize], null: false
    # @return [Integer, nil] live slots that only a major GC looks at: of those that are not old, any may be garbage
    field :old_objects, :count
    # @return [Integer, nil] pages that Ruby may add before it collects again; nil from Ruby 3.4 on
    field :allocatable_pages, :count
    # @return [Float, nil] up to which share of free slots a GC keeps its empty pages:
    #   RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO when memscope was loaded, or Ruby's default
    field :free_slots_max_ratio, :number
    # @return [Integer, nil] and up to which number of them: RUBY_GC_HEAP_INIT_SLOTS, or Ruby's default
    field :free_slots_floor, :count
    # @return [Boolean] whether all garbage was collected for this reading
    field :collected?, :boolean
    # @return [String, nil] what the GC was doing: "none", "marking" or "sweeping"
    field :gc_state, :string

    # What Memscope.ruby_heap does.
    #
    # @param collect [Boolean]
    # @return [RubyHeap]
    # @raise [ArgumentError] unless `collect` is true or false
    def self.read(collect: false) = capture(Native.ruby_heap(check_switch(:collect, collect)))

    # @return [Integer, nil] bytes of all pages, empty ones included where their number is known
    def bytes = pages && (page_bytes * (pages + (empty_pages || 0)))

    # @return [Float, nil] live slots of all slots; nil without slots
    def occupancy = RubyHeap.ratio(live_slots, slots)

    # @api private
    def self.ratio(part, whole) = part && whole&.positive? ? part.fdiv(whole) : nil
  end
end
