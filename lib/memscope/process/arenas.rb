# frozen_string_literal: true

require_relative "../value/collection"

module Memscope
  # One arena of the allocator: an independent heap with its own locks.
  #
  # The numbers are the allocator's own (jemalloc's stats.arenas.<i>, glibc's malloc_info), except glibc's
  # `resident_bytes`. A number that the allocator does not count is nil, and not in `to_h`.
  class Arena < Record
    # @return [Integer, nil] nil for all arenas together
    field :index, :count, identity: true
    alias id index
    # @return [String, nil] jemalloc's name of the arena (5.3.1)
    field :name, :string, sparse: true
    # @return [Integer, nil] allocated, thread caches included: under jemalloc small and large size classes, under glibc
    #   the memory of the arena that is not free
    field :allocated_bytes, :bytes, sparse: true
    # @return [Boolean, nil] whether jemalloc reserves the arena for large allocations (opt.oversize_threshold)
    field :huge?, :boolean, sparse: true

    # @return [Integer, nil] resident memory: under glibc as the kernel counts the arena's heaps; under jemalloc,
    #   jemalloc's own upper bound (metadata, active and dirty pages), as active pages may be untouched
    field :resident_bytes, :bytes, sparse: true

    # @!group jemalloc

    # @return [Integer, nil] threads assigned to the arena
    field :threads, :count, sparse: true
    # @return [Integer, nil] nanoseconds since the arena was created
    field :uptime_ns, :count, counters: true, sparse: true
    # @return [Integer, nil] allocated from slabs, thread caches included
    field :small_allocated_bytes, :bytes, sparse: true
    # @return [Integer, nil] allocated in extents of their own, thread caches included
    field :large_allocated_bytes, :bytes, sparse: true
    # @return [Integer, nil] whole pages with allocations in them
    field :active_bytes, :bytes, sparse: true
    # @return [Integer, nil] free pages that were written to; a purge returns them
    field :dirty_bytes, :bytes, sparse: true
    # @return [Integer, nil] free pages that the kernel may reclaim (MADV_FREE)
    field :muzzy_bytes, :bytes, sparse: true
    # @return [Integer, nil] address space in use
    field :mapped_bytes, :bytes, sparse: true
    # @return [Integer, nil] address space kept for reuse, without memory as far as jemalloc knows
    field :retained_bytes, :bytes, sparse: true
    # @return [Integer, nil] base and internal metadata
    field :metadata_bytes, :bytes, sparse: true
    # @return [Integer, nil] bootstrap allocations of jemalloc itself
    field :base_bytes, :bytes, sparse: true
    # @return [Integer, nil] other allocations of jemalloc itself
    field :internal_bytes, :bytes, sparse: true
    # @return [Integer, nil] cached in the thread caches of its threads
    field :tcache_bytes, :bytes, sparse: true
    # @return [Integer, nil] milliseconds until dirty pages are purged; -1 never. nil for all arenas together
    field :dirty_decay_ms, :integer, sparse: true
    # @return [Integer, nil] milliseconds until muzzy pages are returned; -1 never. nil for all arenas together
    field :muzzy_decay_ms, :integer, sparse: true

    # @return [Integer, nil] passes that purged dirty pages
    field :dirty_purges, :count, counters: true, sparse: true
    # @return [Integer, nil] system calls of the passes that purged dirty pages
    field :dirty_madvises, :count, counters: true, sparse: true
    # @return [Integer, nil] dirty pages that were purged
    field :dirty_purged_pages, :count, counters: true, sparse: true
    # @return [Integer, nil] passes that returned muzzy pages
    field :muzzy_purges, :count, counters: true, sparse: true
    # @return [Integer, nil] system calls of the passes that returned muzzy pages
    field :muzzy_madvises, :count, counters: true, sparse: true
    # @return [Integer, nil] muzzy pages that were returned
    field :muzzy_purged_pages, :count, counters: true, sparse: true

    # @return [Hash{Symbol => Hash{Symbol => Integer}}, nil] contention by mutex: operations, waits, spins,
    #   owner_switches, wait_ns, longest_wait_ns, most_waiting
    field :mutexes, :tables, counters: %i[operations waits spins owner_switches wait_ns], sparse: true

    # @!group glibc

    # @return [Integer, nil] memory from the kernel
    field :system_bytes, :bytes, sparse: true
    # @return [Integer, nil] peak of `system_bytes`
    field :system_max_bytes, :bytes, sparse: true
    # @return [Integer, nil] reserved address space
    field :address_space_bytes, :bytes, sparse: true
    # @return [Integer, nil] the writable part of that address space
    field :writable_bytes, :bytes, sparse: true
    # @return [Integer, nil] mappings of the arena; nil for the main arena
    field :heaps, :count, sparse: true
    # @return [Integer, nil] free blocks outside fastbins and thread caches, the heap's top included, resident or not;
    #   malloc_info adds up sizes with their flag bits, so this is too high by a byte or more per block
    field :free_bytes, :bytes, sparse: true
    # @return [Integer, nil] number of the blocks in `free_bytes`, the top counted as one
    field :free_blocks, :count, sparse: true
    # @return [Integer, nil] in fastbins (removed in glibc 2.43)
    field :fast_bytes, :bytes, sparse: true
    # @return [Integer, nil] number of blocks in fastbins
    field :fast_blocks, :count, sparse: true
    # @return [Array<Hash{Symbol => Object}>, nil] free blocks by size: from_bytes, to_bytes, bytes, blocks, unsorted;
    #   sizes as malloc_info prints them, with the flag bits of the block's header
    field :free_sizes, :list, sparse: true

    # @!endgroup

    # The columns of a table of arenas, by allocator: heading => field.
    COLUMNS = {
      jemalloc: { "allocated" => :allocated_bytes, "active" => :active_bytes, "dirty" => :dirty_bytes,
                  "muzzy" => :muzzy_bytes, "retained" => :retained_bytes, "metadata" => :metadata_bytes,
                  "caches" => :tcache_bytes }.freeze,
      glibc: { "resident" => :resident_bytes, "allocated" => :allocated_bytes, "free" => :free_bytes,
               "fast" => :fast_bytes, "system" => :system_bytes, "peak" => :system_max_bytes }.freeze
    }.freeze

    # The fields that metrics export for each arena.
    LEVELS = %i[allocated_bytes active_bytes dirty_bytes muzzy_bytes retained_bytes resident_bytes metadata_bytes
                tcache_bytes threads system_bytes free_bytes fast_bytes].freeze

    class << self
      # For all arenas together jemalloc returns the decay time -1, which means nothing.
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

  # The allocator's arenas that are in use.
  #
  #   Memscope.arenas.max_by(&:dirty_bytes).index  # => 3
  class Arenas < Reading
    include Lookup

    # @return [Symbol] the allocator that serves malloc
    field :allocator, :symbol, null: false
    # @return [Integer, nil] the epoch of jemalloc's statistics; all numbers here are of this epoch
    field :epoch, :count
    # @return [Integer, nil] number of indexes that jemalloc has; not all are in use
    field :limit, :count
    # @return [Array<Arena>] by index
    collection :arenas, [Arena]
    # @return [Arena, nil] all arenas together, as the allocator itself sums them
    field :merged, Arena
    # @return [Integer, nil] glibc's blocks outside the arenas, each in a mapping of its own
    field :mmapped_bytes, :bytes
    # @return [Integer, nil] number of the blocks in `mmapped_bytes`
    field :mmapped_blocks, :count

    # (see Memscope.arenas)
    def self.read = capture(Native.arenas(true))

    # Tier T1 under jemalloc. Tier T2 under other allocators, hence read only at an interval; if there is no interval,
    # not at all.
    #
    # @api private
    # @param cache [TtlCache]
    # @param interval [Numeric, nil] seconds
    # @return [Arenas, nil]
    def self.read_for_metrics(cache, interval)
      return read if Native.allocator[:name] == :jemalloc

      cache.fetch(interval) { read } if interval
    end

    # @param arena [Arena] one of these arenas, or `merged`
    # @return [String] for people: "3", "huge 3", "main" or "all"
    def label(arena)
      return "all" unless arena.index

      allocator == :glibc && arena.index.zero? ? "main" : "#{'huge ' if arena.huge?}#{arena.index}"
    end

    # @api private
    # @param name [Symbol] one of Arena::LEVELS
    # @return [Hash{Integer => Integer}] the numbers by the arenas' indexes, without arenas that do not have the number
    def level(name) = arenas.to_h { |arena| [arena.index, arena.public_send(name)] }.compact

    # @api private
    # @return [Hash{Symbol => Hash{Integer => Integer}}] the levels (of Arena::LEVELS) that any arena has
    def levels = Arena::LEVELS.to_h { |name| [name, level(name)] }.reject { |_name, numbers| numbers.empty? }

    # @api private
    # @return [Boolean] whether anything could be read
    def known? = !merged.nil?
  end
end
