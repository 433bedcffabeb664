# frozen_string_literal: true

require_relative "native"
require_relative "reading"

module Memscope
  # The totals that are cheap to read, at one moment: the kernel's, Ruby's, the allocator's.
  #
  #   before = Memscope.snapshot
  #   work
  #   (Memscope.snapshot - before).dig(:jemalloc, :allocated_bytes).delta
  #
  # Keys of +gc+, +gc_heaps+, +jemalloc+ and +glibc+ are upstream's, but for amounts of memory that jemalloc counts in
  # bytes, which end in _bytes.
  class Snapshot < Reading
    # The keys of GC.stat that only rise. The others are levels: among them malloc_increase_bytes, which each GC sets
    # back, and weak_references_count, which is that of the last GC.
    GC_COUNTERS = %i[
      count time marking_time sweeping_time minor_gc_count major_gc_count compact_count read_barrier_faults
      total_moved_objects total_allocated_pages total_freed_pages total_allocated_objects total_freed_objects
    ].freeze

    # The keys of each Hash of GC.stat_heap that only rise.
    GC_HEAP_COUNTERS = %i[
      total_allocated_pages total_freed_pages total_allocated_objects total_freed_objects
      force_major_gc_count force_incremental_marking_finish_count
    ].freeze

    # The keys of +jemalloc+ that only rise, as the extension's table of mallctl keys has them.
    JEMALLOC_COUNTERS = Native.const_defined?(:JEMALLOC_COUNTERS) ? Native::JEMALLOC_COUNTERS : [].freeze

    # @return [Integer, nil] resident (/proc/self/statm)
    field :rss_bytes, :bytes
    # @return [Integer, nil] address space (/proc/self/statm)
    field :virtual_bytes, :bytes
    # @return [Integer, nil] resident pages of files and shared memory (/proc/self/statm)
    field :shared_bytes, :bytes
    # @return [Hash{Symbol => Integer}] GC.stat, with the keys that this Ruby has
    field :gc, :hash, counters: GC_COUNTERS
    # @return [Hash{Integer => Hash{Symbol => Integer}}, nil] GC.stat_heap; nil before Ruby 3.2
    field :gc_heaps, :hash, counters: GC_HEAP_COUNTERS
    # @return [Hash{Symbol => Integer, nil}, nil] jemalloc's totals, of the epoch in :epoch; nil where jemalloc does
    #   not serve malloc; a key that this version of jemalloc has not is nil
    field :jemalloc, :hash, counters: JEMALLOC_COUNTERS
    # @return [Hash{Symbol => Integer}, nil] mallinfo2; nil unless it was asked for and glibc serves malloc
    field :glibc, :hash

    # What Memscope.snapshot does.
    #
    # @param malloc [Boolean]
    # @return [Snapshot]
    # @raise [ArgumentError] unless `malloc` is true or false
    def self.read(malloc: false) = capture(Native.snapshot(check_switch(:malloc, malloc)))
  end
end
