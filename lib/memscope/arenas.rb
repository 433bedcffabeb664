# frozen_string_literal: true

require_relative "native"
require_relative "reading"

module Memscope
  # One arena of the allocator: a heap with locks of its own, so that threads need not wait for each other.
  #
  # Each number is the allocator's own, in its meaning (jemalloc's stats.arenas.<i>, glibc's malloc_info). What the
  # allocator that serves malloc does not count is nil, and not in `to_h`.
  class Arena < Record
    # @return [Integer, nil] nil for all of them together
    field :index, :count
    # @return [String, nil] jemalloc's own (5.3.1)
    field :name, :string, sparse: true
    # @return [Integer, nil] given out and in thread caches: under jemalloc in small and large size classes, under
    #   glibc all that the arena has and that is not free
    field :allocated_bytes, :bytes, sparse: true
    # @return [Boolean, nil] whether jemalloc keeps it for large allocations (opt.oversize_threshold)
    field :huge?, :boolean, sparse: true

    # @!group jemalloc

    # @return [Integer, nil] assigned to it
    field :threads, :count, sparse: true
    # @return [Integer, nil] nanoseconds since it was made
    field :uptime_ns, :count, counters: true, sparse: true
    # @return [Integer, nil] given out and in thread caches, from slabs
    field :small_allocated_bytes, :bytes, sparse: true
    # @return [Integer, nil] and in extents of their own
    field :large_allocated_bytes, :bytes, sparse: true
    # @return [Integer, nil] whole pages with allocations in them
    field :active_bytes, :bytes, sparse: true
    # @return [Integer, nil] free pages that were written to: a purge returns them
    field :dirty_bytes, :bytes, sparse: true
    # @return [Integer, nil] free pages that the kernel may take (MADV_FREE)
    field :muzzy_bytes, :bytes, sparse: true
    # @return [Integer, nil] address space in use
    field :mapped_bytes, :bytes, sparse: true
    # @return [Integer, nil] address space kept for later, without memory as far as jemalloc knows
    field :retained_bytes, :bytes, sparse: true
    # @return [Integer, nil] metadata, active and dirty: an upper bound, for active pages may be untouched
    field :resident_bytes, :bytes, sparse: true
    # @return [Integer, nil] base and internal together
    field :metadata_bytes, :bytes, sparse: true
    # @return [Integer, nil] of jemalloc's own bootstrap allocations
    field :base_bytes, :bytes, sparse: true
    # @return [Integer, nil] allocated for jemalloc itself
    field :internal_bytes, :bytes, sparse: true
    # @return [Integer, nil] huge pages that metadata lies in
    field :metadata_thp, :count, sparse: true
    # @return [Integer, nil] extent structures kept for reuse
    field :extent_avail, :count, sparse: true
    # @return [Integer, nil] in the caches of its threads
    field :tcache_bytes, :bytes, sparse: true
    # @return [Integer, nil] in those caches, and freed (jemalloc 5.3)
    field :tcache_stashed_bytes, :bytes, sparse: true
    # @return [Integer, nil] address space given up for good
    field :abandoned_vm_bytes, :bytes, sparse: true
    # @return [Integer, nil] after which dirty pages are given up, in ms; -1 never. nil for all arenas together
    field :dirty_decay_ms, :integer, sparse: true
    # @return [Integer, nil] after which muzzy pages are given back, in ms; -1 never
    field :muzzy_decay_ms, :integer, sparse: true

    # @return [Integer, nil] passes that gave dirty pages up
    field :dirty_purges, :count, counters: true, sparse: true
    # @return [Integer, nil] system calls that these passes took
    field :dirty_madvises, :count, counters: true, sparse: true
    # @return [Integer, nil] pages that they gave up
    field :dirty_purged_pages, :count, counters: true, sparse: true
    # @return [Integer, nil] passes that gave muzzy pages back
    field :muzzy_purges, :count, counters: true, sparse: true
    # @return [Integer, nil] system calls that these passes took
    field :muzzy_madvises, :count, counters: true, sparse: true
    # @return [Integer, nil] pages that they gave back
    field :muzzy_purged_pages, :count, counters: true, sparse: true
    # @return [Integer, nil] of regions, by thread caches being filled and by callers without one
    field :small_allocations, :count, counters: true, sparse: true
    # @return [Integer, nil] of regions, by thread caches being flushed and by callers without one
    field :small_deallocations, :count, counters: true, sparse: true
    # @return [Integer, nil] by callers, as far as thread caches have told
    field :small_requests, :count, counters: true, sparse: true
    # @return [Integer, nil] of thread caches (jemalloc 5.2.1)
    field :small_cache_fills, :count, counters: true, sparse: true
    # @return [Integer, nil] of thread caches (jemalloc 5.2.1)
    field :small_cache_flushes, :count, counters: true, sparse: true
    # @return [Integer, nil] of large size classes
    field :large_allocations, :count, counters: true, sparse: true
    # @return [Integer, nil] of large size classes
    field :large_deallocations, :count, counters: true, sparse: true
    # @return [Integer, nil] by callers, as far as thread caches have told
    field :large_requests, :count, counters: true, sparse: true
    # @return [Integer, nil] of thread caches (jemalloc 5.2.1)
    field :large_cache_fills, :count, counters: true, sparse: true
    # @return [Integer, nil] of thread caches (jemalloc 5.2.1)
    field :large_cache_flushes, :count, counters: true, sparse: true

    # @return [Hash{Symbol => Hash{Symbol => Integer}}, nil] contention, by mutex: operations, waits, spins,
    #   owner_switches, wait_ns, longest_wait_ns, most_waiting
    field :mutexes, :hash, counters: %i[operations waits spins owner_switches wait_ns], sparse: true

    # @!group glibc

    # @return [Integer, nil] what it has from the kernel
    field :system_bytes, :bytes, sparse: true
    # @return [Integer, nil] and had at most
    field :system_max_bytes, :bytes, sparse: true
    # @return [Integer, nil] reserved
    field :address_space_bytes, :bytes, sparse: true
    # @return [Integer, nil] of it, made writable
    field :writable_bytes, :bytes, sparse: true
    # @return [Integer, nil] mappings that it is made of; nil for the main arena
    field :heaps, :count, sparse: true
    # @return [Integer, nil] in free blocks outside of fastbins and thread caches, the heap's top among them, resident
    #   or not; malloc_info adds up sizes with their flag bits, so it is too high by a byte or more a block
    field :free_bytes, :bytes, sparse: true
    # @return [Integer, nil] of these, the top being one
    field :free_blocks, :count, sparse: true
    # @return [Integer, nil] in fastbins, which glibc 2.43 has not any more
    field :fast_bytes, :bytes, sparse: true
    # @return [Integer, nil] of these
    field :fast_blocks, :count, sparse: true
    # @return [Array<Hash{Symbol => Object}>, nil] free blocks by size: from_bytes, to_bytes, bytes, blocks, unsorted;
    #   sizes as malloc_info prints them, with the flag bit of the block's header added
    field :free_sizes, :list, sparse: true

    # @!endgroup

    # The columns of a table of arenas, by allocator: heading => field.
    COLUMNS = {
      jemalloc: { "allocated" => :allocated_bytes, "active" => :active_bytes, "dirty" => :dirty_bytes,
                  "muzzy" => :muzzy_bytes, "retained" => :retained_bytes, "metadata" => :metadata_bytes,
                  "caches" => :tcache_bytes }.freeze,
      glibc: { "system" => :system_bytes, "peak" => :system_max_bytes, "allocated" => :allocated_bytes,
               "free" => :free_bytes, "fast" => :fast_bytes }.freeze
    }.freeze

    # The numbers that metrics have of each arena.
    LEVELS = %i[allocated_bytes active_bytes dirty_bytes muzzy_bytes retained_bytes resident_bytes metadata_bytes
                tcache_bytes threads system_bytes free_bytes fast_bytes].freeze

    class << self
      # @return [Symbol] the field that tells it from others of a list
      def identity = :index

      # jemalloc has no decay time for all arenas together, and answers -1.
      #
      # @param body [Hash{Symbol => Object}] from the extension
      def capture(body)
        body = body.except(:dirty_decay_ms, :muzzy_decay_ms) unless body[:index]
        super({ **body, allocated_bytes: allocated_bytes(body),
                        metadata_bytes: sum(*body.values_at(:base_bytes, :internal_bytes)) })
      end

      private

      def allocated_bytes(body)
        system, free, fast = body.values_at(:system_bytes, :free_bytes, :fast_bytes)
        return [system - free - (fast || 0), 0].max if system && free

        sum(*body.values_at(:small_allocated_bytes, :large_allocated_bytes))
      end

      def sum(one, other) = one && other && (one + other)
    end
  end

  # The allocator's arenas, those that are in use.
  #
  #   Memscope.arenas.max_by(&:dirty_bytes).index  # => 3
  class Arenas < Reading
    # @return [Symbol] what serves malloc
    field :allocator, :symbol, null: false
    # @return [Integer, nil] jemalloc's, of all these numbers
    field :epoch, :count
    # @return [Integer, nil] indexes that jemalloc has; the others are not in use
    field :limit, :count
    # @return [Array<Arena>] by index
    collection :arenas, [Arena], counters: Arena.counters
    # @return [Arena, nil] all together, as the allocator itself sums them
    field :merged, Arena, counters: Arena.counters
    # @return [Integer, nil] glibc's blocks outside of the arenas, each in a mapping of its own
    field :mmapped_bytes, :bytes
    # @return [Integer, nil] of these
    field :mmapped_blocks, :count

    # What Memscope.arenas does.
    #
    # @return [Arenas]
    def self.read = capture(Native.arenas(true))

    # @param index [Integer]
    # @return [Arena]
    # @raise [KeyError] naming the indexes there are
    def [](index)
      find { |arena| arena.index == index } or
        raise KeyError.new("arena #{index.inspect} is not there; there are: #{map(&:index).join(', ')}",
                           receiver: self, key: index)
    end

    # @param arena [Arena] one of them, or `merged`
    # @return [String] for people: "3", "huge 3", "main" or "all"
    def label(arena)
      return "all" unless arena.index

      allocator == :glibc && arena.index.zero? ? "main" : "#{'huge ' if arena.huge?}#{arena.index}"
    end

    # @api private
    # @param name [Symbol] of Arena::LEVELS
    # @return [Hash{Integer => Integer}] by index, of the arenas that have the number
    def level(name) = arenas.to_h { |arena| [arena.index, arena.public_send(name)] }.compact

    # @api private
    # @return [Hash{Symbol => Hash{Integer => Integer}}] those of Arena::LEVELS that any arena has
    def levels = Arena::LEVELS.to_h { |name| [name, level(name)] }.reject { |_name, numbers| numbers.empty? }

    # @api private
    # @return [Boolean] whether anything could be read
    def known? = !merged.nil?
  end
end
