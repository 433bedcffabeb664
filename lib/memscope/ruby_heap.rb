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
    # Rubies whose GC.compact takes whatever lies above a thread's stack for an object: ruby/ruby#7081, fixed in 3.1.4
    # and 3.2.1.
    UNSAFE_TO_COMPACT = %w[3.1.0 3.1.1 3.1.2 3.1.3 3.2.0].freeze
    private_constant :UNSAFE_TO_COMPACT

    # The pages of one slot size.
    class SlotSize < Record
      # @!attribute [r] slot_size
      #   @return [Integer] bytes of one slot
      field :slot_size, :bytes, null: false
      # @!attribute [r] pages
      #   @return [Integer]
      field :pages, :count
      # @!attribute [r] hidden_empty_pages
      #   @return [Integer] those of them without any object, which GC.stat counts as in use
      field :hidden_empty_pages, :count
      # @!attribute [r] pinned_pages_min
      #   @return [Integer, nil] pages with an object that compaction surely leaves where it is
      field :pinned_pages_min, :count
      # @!attribute [r] pinned_pages_max
      #   @return [Integer, nil] pages with an object that it may leave where it is
      field :pinned_pages_max, :count
      # @!attribute [r] slots
      #   @return [Integer]
      field :slots, :count
      # @!attribute [r] live_slots
      #   @return [Integer] slots with an object in them, garbage that no GC has found yet included
      field :live_slots, :count
      # @!attribute [r] free_slots
      #   @return [Integer]
      field :free_slots, :count
      # @!attribute [r] pages_by_tenths
      #   @return [Array<Integer>] ten numbers of pages: with less than a tenth of their slots live, less than two
      #     tenths, …, and nine tenths or more
      field :pages_by_tenths, :list
      # @!attribute [r] compactable_min_bytes
      #   @return [Integer, nil] pages that compaction empties even where all that may be pinned is
      field :compactable_min_bytes, :bytes
      # @!attribute [r] compactable_bytes
      #   @return [Integer] pages that these live slots would not need if all that is not surely pinned stood side by
      #     side: an upper bound
      field :compactable_bytes, :bytes

      # @return [Symbol] the field that tells it from others of a list
      def self.identity = :slot_size

      # @return [Float, nil] live slots of all slots; nil without slots
      def occupancy = RubyHeap.ratio(live_slots, slots)
    end

    # @!attribute [r] page_bytes
    #   @return [Integer] bytes of one page
    field :page_bytes, :bytes
    # @!attribute [r] pages
    #   @return [Integer] pages with slots in use by a size; those that GC.stat counts as empty are not among them
    field :pages, :count
    # @!attribute [r] empty_pages
    #   @return [Integer, nil] pages kept without any object, as GC.stat counts them
    field :empty_pages, :count
    # @!attribute [r] hidden_empty_pages
    #   @return [Integer] pages without any object that GC.stat counts as in use; they are among `pages`
    field :hidden_empty_pages, :count
    # @!attribute [r] pinned_pages_min
    #   @return [Integer, nil] pages with an object that compaction surely leaves where it is: one with a finalizer, or
    #     one that a C extension's object holds without knowing of compaction
    field :pinned_pages_min, :count
    # @!attribute [r] pinned_pages_max
    #   @return [Integer, nil] pages with an object that it may leave where it is, too: what roots, threads and fibers
    #     refer to, Symbols made at run time, keys and values of Hashes that compare by identity
    field :pinned_pages_max, :count
    # @!attribute [r] slots
    #   @return [Integer]
    field :slots, :count
    # @!attribute [r] live_slots
    #   @return [Integer] garbage that no GC has found yet included
    field :live_slots, :count
    # @!attribute [r] free_slots
    #   @return [Integer]
    field :free_slots, :count
    # @!attribute [r] pages_by_tenths
    #   @return [Array<Integer>] as SlotSize#pages_by_tenths, for all sizes
    field :pages_by_tenths, :list
    # @!attribute [r] compactable_min_bytes
    #   @return [Integer, nil] pages that compaction empties even where all that may be pinned is
    field :compactable_min_bytes, :bytes
    # @!attribute [r] compactable_bytes
    #   @return [Integer] an upper bound of what GC.compact can empty: only what is surely pinned stays where it is
    field :compactable_bytes, :bytes
    # @!attribute [r] slot_sizes
    #   @return [Array<SlotSize>]
    field :slot_sizes, [SlotSize], null: false
    # @!attribute [r] old_objects
    #   @return [Integer, nil] live slots that only a major GC looks at: of those that are not old, any may be garbage
    field :old_objects, :count
    # @!attribute [r] allocatable_pages
    #   @return [Integer, nil] pages that Ruby may add before it collects again; nil from Ruby 3.4 on
    field :allocatable_pages, :count
    # @!attribute [r] free_slots_max_ratio
    #   @return [Float, nil] up to which share of free slots a GC keeps its empty pages:
    #     RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO when memscope was loaded, or Ruby's default
    field :free_slots_max_ratio, :number
    # @!attribute [r] free_slots_floor
    #   @return [Integer, nil] and up to which number of them: RUBY_GC_HEAP_INIT_SLOTS, or Ruby's default
    field :free_slots_floor, :count
    # @!attribute [r] collected
    #   @return [Boolean] whether all garbage was collected for this reading
    field :collected, :boolean
    # @!attribute [r] gc_state
    #   @return [String, nil] what the GC was doing: "none", "marking" or "sweeping"
    field :gc_state, :string

    # What Memscope.ruby_heap does.
    #
    # @param collect [Boolean]
    # @return [RubyHeap]
    # @raise [ArgumentError] unless `collect` is true or false
    def self.read(collect: false)
      body = Native.ruby_heap(check_switch(:collect, collect))
      body[:reasons][:compactable_bytes] = compaction_refusal if compaction_refusal
      capture(body)
    end

    # @api private
    # @param ruby [String] a version
    # @return [String, nil] why memscope never compacts a heap of this Ruby; nil where it can
    def self.compaction_refusal(ruby = RUBY_VERSION)
      return unless UNSAFE_TO_COMPACT.include?(ruby)

      "GC.compact can crash Ruby #{ruby} (ruby/ruby#7081): upgrade to 3.1.4, 3.2.1 or newer; until then only a " \
        "restart returns these pages"
    end

    # @return [Integer, nil] bytes of all pages, empty ones included where their number is known
    def bytes = pages && ((page_bytes * pages) + empty_bytes)

    # @return [Integer] bytes of the pages that Ruby keeps without an object, as far as their number is known
    def empty_bytes = empty_pages ? page_bytes * empty_pages : 0

    # @return [Float, nil] live slots of all slots; nil without slots
    def occupancy = RubyHeap.ratio(live_slots, slots)

    # @api private
    def self.ratio(part, whole) = part && whole&.positive? ? part.fdiv(whole) : nil
  end
end
