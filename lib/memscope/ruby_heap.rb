# frozen_string_literal: true

require_relative "reading"

module Memscope
  # Pages and slots of Ruby's own heap, from a walk of the object space.
  #
  # A page is Ruby's (16 KiB before Ruby 3.2, 64 KiB since), not the kernel's. Bytes are those of whole pages, whether
  # resident or not; the ledger's row :ruby_heap has the resident ones.
  class RubyHeap < Reading
    # The pages of one slot size.
    class SlotSize < Record
      # @!attribute [r] slot_size
      #   @return [Integer] bytes of one slot
      field :slot_size, :bytes, null: false
      # @!attribute [r] pages
      #   @return [Integer]
      field :pages, :count
      # @!attribute [r] slots
      #   @return [Integer]
      field :slots, :count
      # @!attribute [r] live_slots
      #   @return [Integer] slots with an object in them, garbage that no GC has found yet included
      field :live_slots, :count
      # @!attribute [r] free_slots
      #   @return [Integer]
      field :free_slots, :count
      # @!attribute [r] compactable_bytes
      #   @return [Integer] the pages that these live slots would not need if they stood side by side
      field :compactable_bytes, :bytes

      # @return [Float, nil] live slots of all slots; nil without slots
      def occupancy = RubyHeap.ratio(live_slots, slots)
    end

    # @!attribute [r] page_bytes
    #   @return [Integer] bytes of one page
    field :page_bytes, :bytes
    # @!attribute [r] pages
    #   @return [Integer] pages with slots in use by a size, empty ones not counted
    field :pages, :count
    # @!attribute [r] empty_pages
    #   @return [Integer, nil] pages kept without any object
    field :empty_pages, :count
    # @!attribute [r] slots
    #   @return [Integer]
    field :slots, :count
    # @!attribute [r] live_slots
    #   @return [Integer]
    field :live_slots, :count
    # @!attribute [r] free_slots
    #   @return [Integer]
    field :free_slots, :count
    # @!attribute [r] compactable_bytes
    #   @return [Integer] an upper bound of what GC.compact can empty: pinned objects stay where they are
    field :compactable_bytes, :bytes
    # @!attribute [r] slot_sizes
    #   @return [Array<SlotSize>]
    field :slot_sizes, [SlotSize], null: false
    # @!attribute [r] gc_state
    #   @return [String, nil] what the GC was doing: "none", "marking" or "sweeping"
    field :gc_state, :string

    # @return [Integer, nil] bytes of all pages, empty ones included where their number is known
    def bytes = pages && (page_bytes * (pages + (empty_pages || 0)))

    # @return [Float, nil] live slots of all slots; nil without slots
    def occupancy = RubyHeap.ratio(live_slots, slots)

    # @api private
    def self.ratio(part, whole) = part && whole&.positive? ? part.fdiv(whole) : nil
  end
end
