# frozen_string_literal: true

require_relative "../value/reading"

module Memscope
  # Pages and slots of Ruby's heap, from a walk of the object space, and the pages that compaction could empty.
  #
  # A page here is Ruby's (16 KiB before Ruby 3.2, 64 KiB since), not the kernel's. Bytes count whole pages, resident or
  # not; the ledger's row :ruby_heap has the resident bytes. Ruby does not return every page that compaction empties:
  # CompactionForecast estimates how many.
  class RubyHeap < Reading
    # Rubies whose GC.compact mistakes whatever lies above a thread's stack for an object: ruby/ruby#7081, fixed in
    # 3.1.4 and 3.2.1.
    UNSAFE_TO_COMPACT = %w[3.1.0 3.1.1 3.1.2 3.1.3 3.2.0].freeze
    # The longest predicted walk, in microseconds under the GVL, that the surfaces make in the process itself.
    BUDGET_US = 10_000
    private_constant :UNSAFE_TO_COMPACT, :BUDGET_US

    # The pages of one slot size.
    class SlotSize < Record
      # @return [Integer] bytes of one slot
      field :slot_size, :bytes, null: false, identity: true
      # @return [Integer]
      field :pages, :count
      # @return [Integer] pages that GC.stat counts as in use although they hold no object
      field :hidden_empty_pages, :count
      # @return [Integer, nil] pages with an object that compaction certainly does not move
      field :pinned_pages_min, :count
      # @return [Integer, nil] pages with an object that compaction might be unable to move
      field :pinned_pages_max, :count
      # @return [Integer]
      field :slots, :count
      # @return [Integer] slots with an object in them, uncollected garbage included
      field :live_slots, :count
      # @return [Integer]
      field :free_slots, :count
      # @return [Array<Integer>] ten counts of pages by the share of their slots that is live: below one tenth, below
      #   two tenths, …, and nine tenths or more
      field :pages_by_tenths, :list
      # @return [Integer, nil] bytes of the pages that compaction empties even if every object that may be pinned is
      #   pinned
      field :compactable_min_bytes, :bytes
      # @return [Integer] bytes of the pages that would be free if compaction moved every object except those certainly
      #   pinned: an upper bound
      field :compactable_bytes, :bytes

      # @return [Float, nil] live slots as a share of all slots; nil without slots
      def occupancy = RubyHeap.ratio(live_slots, slots)
    end

    # @return [Integer] bytes of one page
    field :page_bytes, :bytes
    # @return [Integer] pages with slots; pages that GC.stat counts as empty are not included
    field :pages, :count
    # @return [Integer, nil] pages kept without any object, as GC.stat counts them
    field :empty_pages, :count
    # @return [Integer] pages that GC.stat counts as in use although they hold no object; included in `pages`
    field :hidden_empty_pages, :count
    # @return [Integer, nil] pages with an object that compaction certainly does not move, such as one with a finalizer,
    #   one that is referenced by a C extension's object without support for compaction, or a key of a Hash that
    #   compares by identity
    field :pinned_pages_min, :count
    # @return [Integer, nil] pinned_pages_min, plus the pages with an object that compaction might be unable to move:
    #   one referenced by roots, threads or fibers, a Symbol created at run time, or an object that would have to change
    #   its slot size
    field :pinned_pages_max, :count
    # @return [Integer]
    field :slots, :count
    # @return [Integer] uncollected garbage included
    field :live_slots, :count
    # @return [Integer]
    field :free_slots, :count
    # @return [Array<Integer>] as SlotSize#pages_by_tenths, for all sizes
    field :pages_by_tenths, :list
    # @return [Integer, nil] bytes of the pages that compaction empties even if every object that may be pinned is
    #   pinned
    field :compactable_min_bytes, :bytes
    # @return [Integer] bytes of the pages that GC.compact can empty at most: if all but the certainly pinned objects
    #   move
    field :compactable_bytes, :bytes
    # @return [Array<SlotSize>]
    field :slot_sizes, [SlotSize], null: false
    # @return [Integer, nil] objects that only a major GC can free, as GC.stat counts them. Garbage among them fills its
    #   slots until the next major GC, other garbage until the next GC of any kind
    field :old_objects, :count
    # @return [Integer, nil] pages that Ruby may add before it collects again; nil from Ruby 3.4 on
    field :allocatable_pages, :count
    # @return [Float, nil] share of free slots up to which a GC keeps its empty pages: RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO
    #   as it was when memscope was loaded, or Ruby's default
    field :free_slots_max_ratio, :number
    # @return [Integer, nil] number of free slots up to which a GC keeps its empty pages: RUBY_GC_HEAP_INIT_SLOTS, from
    #   Ruby 3.3 on the sum of RUBY_GC_HEAP_%d_INIT_SLOTS, or Ruby's defaults; nil from Ruby 4.1 on
    field :free_slots_floor, :count
    # @return [Boolean] whether all garbage was collected for this reading
    field :collected?, :boolean
    # @return [String, nil] state of the GC: "none", "marking" or "sweeping"
    field :gc_state, :string
    # @return [Boolean, nil] whether GC.disable was called, so that nothing is collected; nil beside other Ractors
    field :gc_disabled?, :boolean, sparse: true

    # @return [Symbol, nil] where the slots were walked: :process or :child (a forked child); :headers if they were not
    #   walked: then the counts of slots are from the pages' headers, pins are unknown, and a reason says why
    field :walked_in, :symbol
    # @return [Integer, nil] microseconds for which forking the child was predicted to stop Ruby; nil without a child
    field :predicted_pause_us, :count
    # @return [Integer, nil] microseconds for which forking the child stopped Ruby; nil without a child
    field :pause_us, :count
    # @return [Integer, nil] memory that live objects hold through malloc, beyond their slots; only in a diagnosis
    field :held_by_objects_bytes, :bytes, sparse: true

    # (see Memscope.ruby_heap)
    def self.read(collect: false) = of(Native.ruby_heap(check_switch(:collect, collect), false, nil))

    # Reads the heap for surfaces, which read repeatedly or for other processes: waits without the GVL for a garbage
    # collection under way, and walks in a forked child if the walk would take longer than `budget_us`, and longer than
    # a fork would stop Ruby. A budget of 0 always forks.
    #
    # @api private
    # @param objects [Boolean] whether to read held_by_objects_bytes too
    # @return [RubyHeap]
    def self.bounded(objects: false, budget_us: BUDGET_US) = of(Native.ruby_heap(false, objects, budget_us))

    # @api private
    # @param body [Hash{Symbol => Object}] from the extension
    # @return [RubyHeap]
    def self.of(body)
      body[:reasons][:compactable_bytes] = compaction_refusal if compaction_refusal
      capture(body)
    end

    # @api private
    # @param ruby [String] a version
    # @return [String, nil] why memscope never compacts a heap of this Ruby; nil if it can
    def self.compaction_refusal(ruby = RUBY_VERSION)
      return unless UNSAFE_TO_COMPACT.include?(ruby)

      "GC.compact can crash Ruby #{ruby} (ruby/ruby#7081): upgrade to 3.1.4, 3.2.1 " \
        "or newer; until then, only a restart returns the pages that compaction " \
        "would empty"
    end

    # @return [Integer, nil] bytes of all pages, empty ones included if their number is known
    def bytes = pages && ((page_bytes * pages) + empty_bytes)

    # @return [Integer] bytes of the empty pages that Ruby keeps; 0 if their number is unknown
    def empty_bytes = empty_pages ? page_bytes * empty_pages : 0

    # @return [Float, nil] live slots as a share of all slots; nil without slots
    def occupancy = RubyHeap.ratio(live_slots, slots)

    # @api private
    def self.ratio(part, whole) = part && whole&.positive? ? part.fdiv(whole) : nil
  end
end
