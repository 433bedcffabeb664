# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # Pages and slots of Ruby's heap, from a walk of the object space, and the pages that compaction could empty.
  #
  # A page here is Ruby's (16 KiB before Ruby 3.2, 64 KiB since), not the kernel's. Bytes count whole pages, resident or
  # not. The ledger's row :ruby_heap has the resident bytes. Ruby does not return every page that compaction empties:
  # CompactionForecast estimates how many.
  class RubyHeap < Reading
    # How many times as long as one full GC each of these takes: a Process.warmup also compacts, and a compaction has
    # several passes. Measured: see benchmark/purge.rb and Purge::Compaction.
    FULL_GCS = { gc: 1, compact: Process.respond_to?(:warmup) ? 4 : 10 }.freeze
    # Rubies whose GC.compact mistakes the bytes above a thread's stack for an object: ruby/ruby#7081, fixed in 3.1.4
    # and 3.2.1.
    UNSAFE_TO_COMPACT = %w[3.1.0 3.1.1 3.1.2 3.1.3 3.2.0].freeze
    # Up to this predicted time under the GVL, in microseconds, surfaces walk in the process itself.
    BUDGET_US = 10_000
    private_constant :UNSAFE_TO_COMPACT, :BUDGET_US

    # The pages of one slot size.
    class SlotSize < Record
      # @return [Float, nil] live slots as a share of all slots, or nil without slots
      def occupancy = RubyHeap.ratio(live_slots, slots)
    end

    # (see Memscope.ruby_heap)
    def self.read(collect: false, native: Native)
      of(native.ruby_heap(check_switch(:collect, collect), false, nil), native)
    end

    # For surfaces, which read repeatedly or for other processes: waits without the GVL for a garbage collection under
    # way, and walks in a forked child if the walk would take longer than `budget_us`, and longer than a fork would stop
    # Ruby. A budget of 0 always forks.
    # @api private
    def self.bounded(objects: false, budget_us: BUDGET_US, native: Native)
      of(native.ruby_heap(false, objects, budget_us), native)
    end

    # @api private
    def self.of(body, native)
      refusal = compaction_refusal(native.ruby)
      body[:reasons][:compactable_bytes] = refusal if refusal
      capture(body)
    end

    # @api private
    # @return [String, nil] why memscope never compacts a heap of this Ruby, or nil if it can
    def self.compaction_refusal(ruby = RUBY_VERSION)
      Reasons.sentence([:compaction_crashes, ruby]) if UNSAFE_TO_COMPACT.include?(ruby)
    end

    # @return [Integer, nil] bytes of all pages, empty ones included if their number is known
    def bytes = pages && ((page_bytes * pages) + empty_bytes)

    # @return [Integer] bytes of the empty pages that Ruby keeps, or 0 if their number is unknown
    def empty_bytes = empty_pages ? page_bytes * empty_pages : 0

    # @return [Float, nil] live slots as a share of all slots, or nil without slots
    def occupancy = RubyHeap.ratio(live_slots, slots)

    # @api private
    def self.ratio(part, whole) = part && whole&.positive? ? part.fdiv(whole) : nil
  end
end
