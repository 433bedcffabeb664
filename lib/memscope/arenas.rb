# frozen_string_literal: true

require_relative "reading"

module Memscope
  # One arena of the allocator. What the allocator that serves malloc does not count is nil, and not in `to_h`.
  class Arena < Record
    # @!attribute [r] index
    #   @return [Integer, nil] nil for all of them together
    field :index, :count
    # @!method huge?
    #   @return [Boolean, nil] whether jemalloc keeps it for large allocations (opt.oversize_threshold)
    field :huge, :boolean, sparse: true

    # @!group jemalloc

    # @!attribute [r] threads
    #   @return [Integer, nil] assigned to it
    field :threads, :count, sparse: true
    # @!attribute [r] uptime_ns
    #   @return [Integer, nil] nanoseconds since it was made
    field :uptime_ns, :count, counters: true, sparse: true
    # @!attribute [r] allocated_bytes
    #   @return [Integer, nil] given out and in thread caches, in size classes: small and large
    field :allocated_bytes, :bytes, sparse: true
    # @!attribute [r] small_allocated_bytes
    #   @return [Integer, nil]
    field :small_allocated_bytes, :bytes, sparse: true
    # @!attribute [r] large_allocated_bytes
    #   @return [Integer, nil]
    field :large_allocated_bytes, :bytes, sparse: true
    # @!attribute [r] active_bytes
    #   @return [Integer, nil] whole pages with allocations in them
    field :active_bytes, :bytes, sparse: true
    # @!attribute [r] dirty_bytes
    #   @return [Integer, nil] free pages that were written to: a purge returns them
    field :dirty_bytes, :bytes, sparse: true
    # @!attribute [r] muzzy_bytes
    #   @return [Integer, nil] free pages that the kernel may take (MADV_FREE)
    field :muzzy_bytes, :bytes, sparse: true
    # @!attribute [r] mapped_bytes
    #   @return [Integer, nil] address space in use
    field :mapped_bytes, :bytes, sparse: true
    # @!attribute [r] retained_bytes
    #   @return [Integer, nil] address space kept for later, without memory as far as jemalloc knows
    field :retained_bytes, :bytes, sparse: true
    # @!attribute [r] resident_bytes
    #   @return [Integer, nil] metadata, active and dirty: an upper bound, for active pages may be untouched
    field :resident_bytes, :bytes, sparse: true
    # @!attribute [r] metadata_bytes
    #   @return [Integer, nil] base and internal together
    field :metadata_bytes, :bytes, sparse: true
    # @!attribute [r] base_bytes
    #   @return [Integer, nil] of jemalloc's own bootstrap allocations
    field :base_bytes, :bytes, sparse: true
    # @!attribute [r] internal_bytes
    #   @return [Integer, nil] allocated for jemalloc itself
    field :internal_bytes, :bytes, sparse: true
    # @!attribute [r] metadata_thp
    #   @return [Integer, nil] huge pages that metadata lies in
    field :metadata_thp, :count, sparse: true
    # @!attribute [r] extent_avail
    #   @return [Integer, nil] extent structures kept for reuse
    field :extent_avail, :count, sparse: true
    # @!attribute [r] tcache_bytes
    #   @return [Integer, nil] in the caches of its threads
    field :tcache_bytes, :bytes, sparse: true
    # @!attribute [r] tcache_stashed_bytes
    #   @return [Integer, nil] in those caches, and freed (jemalloc 5.3)
    field :tcache_stashed_bytes, :bytes, sparse: true
    # @!attribute [r] abandoned_vm_bytes
    #   @return [Integer, nil] address space given up for good
    field :abandoned_vm_bytes, :bytes, sparse: true
    # @!attribute [r] dirty_decay_ms
    #   @return [Integer, nil] after which dirty pages are given up, in ms; -1 never. nil for all arenas together
    field :dirty_decay_ms, :integer, sparse: true
    # @!attribute [r] muzzy_decay_ms
    #   @return [Integer, nil] after which muzzy pages are given back, in ms; -1 never
    field :muzzy_decay_ms, :integer, sparse: true

    %i[dirty muzzy].each do |kind|
      field :"#{kind}_purges", :count, counters: true, sparse: true
      field :"#{kind}_madvises", :count, counters: true, sparse: true
      field :"#{kind}_purged_pages", :count, counters: true, sparse: true
    end
    %i[small large].each do |kind|
      field :"#{kind}_allocations", :count, counters: true, sparse: true
      field :"#{kind}_deallocations", :count, counters: true, sparse: true
      field :"#{kind}_requests", :count, counters: true, sparse: true
    end

    # @!attribute [r] mutexes
    #   @return [Hash{Symbol => Hash{Symbol => Integer}}, nil] contention, by mutex: operations, waits, spins,
    #     owner_switches, wait_ns, longest_wait_ns, most_waiting
    field :mutexes, :hash, counters: %i[operations waits spins owner_switches wait_ns], sparse: true

    # @!group glibc

    # @!attribute [r] system_bytes
    #   @return [Integer, nil] what it has from the kernel
    field :system_bytes, :bytes, sparse: true
    # @!attribute [r] system_max_bytes
    #   @return [Integer, nil] and had at most
    field :system_max_bytes, :bytes, sparse: true
    # @!attribute [r] address_space_bytes
    #   @return [Integer, nil] reserved
    field :address_space_bytes, :bytes, sparse: true
    # @!attribute [r] writable_bytes
    #   @return [Integer, nil] of it, made writable
    field :writable_bytes, :bytes, sparse: true
    # @!attribute [r] heaps
    #   @return [Integer, nil] mappings that it is made of; nil for the main arena
    field :heaps, :count, sparse: true
    # @!attribute [r] free_bytes
    #   @return [Integer, nil] in free blocks outside of fastbins and thread caches, resident or not
    field :free_bytes, :bytes, sparse: true
    # @!attribute [r] free_blocks
    #   @return [Integer, nil]
    field :free_blocks, :count, sparse: true
    # @!attribute [r] fast_bytes
    #   @return [Integer, nil] in fastbins, which glibc 2.43 has not any more
    field :fast_bytes, :bytes, sparse: true
    # @!attribute [r] fast_blocks
    #   @return [Integer, nil]
    field :fast_blocks, :count, sparse: true
    # @!attribute [r] free_sizes
    #   @return [Array<Hash{Symbol => Object}>, nil] free blocks by size: from_bytes, to_bytes, bytes, blocks, unsorted;
    #     sizes as malloc_info prints them, with the flag bit of the block's header added
    field :free_sizes, :list, sparse: true

    # @!endgroup

    # jemalloc has no decay time for all arenas together, and answers -1.
    #
    # @param body [Hash{Symbol => Object}] from the extension
    def self.capture(body)
      body = body.except(:dirty_decay_ms, :muzzy_decay_ms) unless body[:index]
      small, large, base, internal =
        body.values_at(:small_allocated_bytes, :large_allocated_bytes, :base_bytes, :internal_bytes)
      super({ **body, allocated_bytes: small && large && (small + large),
                      metadata_bytes: base && internal && (base + internal) })
    end
  end

  # The allocator's arenas, those that are in use.
  #
  #   Memscope.arenas.max_by(&:dirty_bytes).index  # => 3
  class Arenas < Reading
    alias reading_to_h to_h
    private :reading_to_h
    include Enumerable

    # @!attribute [r] allocator
    #   @return [Symbol] what serves malloc
    field :allocator, :symbol, null: false
    # @!attribute [r] epoch
    #   @return [Integer, nil] jemalloc's, of all these numbers
    field :epoch, :count
    # @!attribute [r] limit
    #   @return [Integer, nil] indexes that jemalloc has; the others are not in use
    field :limit, :count
    # @!attribute [r] arenas
    #   @return [Array<Arena>] by index
    field :arenas, [Arena], null: false
    # @!attribute [r] merged
    #   @return [Arena, nil] all together, as the allocator itself sums them
    field :merged, Arena
    # @!attribute [r] mmapped_bytes
    #   @return [Integer, nil] glibc's blocks outside of the arenas, each in a mapping of its own
    field :mmapped_bytes, :bytes
    # @!attribute [r] mmapped_blocks
    #   @return [Integer, nil]
    field :mmapped_blocks, :count

    # @yield [Arena] each, by index
    # @return [Enumerator<Arena>, self] an Enumerator without a block
    def each(&block)
      return enum_for(:each) { arenas.size } unless block

      arenas.each(&block)
      self
    end

    # @param index [Integer]
    # @return [Arena]
    # @raise [KeyError] naming the indexes there are
    def [](index)
      find { |arena| arena.index == index } or
        raise KeyError.new("arena #{index.inspect} is not there; there are: #{map(&:index).join(', ')}",
                           receiver: self, key: index)
    end

    # @return [Hash{Symbol => Object}] as of every reading; Enumerable's would want pairs
    def to_h = reading_to_h
  end
end
