# frozen_string_literal: true

require_relative "../value/reading"

module Memscope
  # Totals that are cheap to read, at one moment: the kernel's, Ruby's, the allocator's.
  #
  #   before = Memscope.snapshot
  #   work
  #   (Memscope.snapshot - before).dig(:jemalloc, :allocated_bytes).change
  #
  # Keys of +gc+, +gc_heaps+, +jemalloc+ and +glibc+ are upstream's, except that jemalloc's keys for byte counts end in
  # _bytes here.
  class Snapshot < Reading
    # Keys of GC.stat whose values only rise. The others are levels, including malloc_increase_bytes, which each GC
    # resets, and weak_references_count, which describes the last GC.
    GC_COUNTERS = %i[
      count time marking_time sweeping_time minor_gc_count major_gc_count compact_count read_barrier_faults
      total_moved_objects total_allocated_pages total_freed_pages total_allocated_objects total_freed_objects
    ].freeze

    # Keys of each Hash of GC.stat_heap whose values only rise.
    GC_HEAP_COUNTERS = %i[
      total_allocated_pages total_freed_pages total_allocated_objects total_freed_objects
      force_major_gc_count force_incremental_marking_finish_count
    ].freeze

    # Keys of +jemalloc+ whose values only rise, from the extension's table of mallctl keys.
    JEMALLOC_COUNTERS = Native::JEMALLOC_COUNTERS

    # @return [Integer, nil] resident (/proc/self/statm)
    field :rss_bytes, :bytes
    # @return [Integer, nil] address space (/proc/self/statm)
    field :virtual_bytes, :bytes
    # @return [Integer, nil] resident pages of files and shared memory (/proc/self/statm)
    field :shared_bytes, :bytes
    # @return [Hash{Symbol => Integer}] GC.stat, with this Ruby's keys
    field :gc, :hash, counters: GC_COUNTERS
    # @return [Hash{Integer => Hash{Symbol => Integer}}, nil] GC.stat_heap; nil before Ruby 3.2
    field :gc_heaps, :tables, counters: GC_HEAP_COUNTERS
    # @return [Hash{Symbol => Integer, nil}, nil] jemalloc's totals at the epoch in :epoch; nil if jemalloc does not
    #   serve malloc. A key that this version of jemalloc does not have is nil
    field :jemalloc, :hash, counters: JEMALLOC_COUNTERS
    # @return [Hash{Symbol => Integer}, nil] mallinfo2; nil without `malloc: true`, or if glibc does not serve malloc
    field :glibc, :hash

    # (see Memscope.snapshot)
    def self.read(malloc: false) = capture(Native.snapshot(check_switch(:malloc, malloc)))
  end
end
