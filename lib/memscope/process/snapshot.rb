# frozen_string_literal: true

require_relative "../value/reading"

module Memscope
  Record.declare(__FILE__)

  # Totals that are cheap to read, at one moment: the kernel's, Ruby's, the allocator's.
  #
  #   before = Memscope.snapshot
  #   work
  #   (Memscope.snapshot - before).dig(:jemalloc, :allocated_bytes).change
  #
  # Keys of +gc+, +gc_heaps+, +jemalloc+ and +glibc+ are upstream's, except that jemalloc's keys for byte counts end in
  # _bytes here.
  class Snapshot < Reading
    # Keys of `gc` whose values only rise.
    GC_COUNTERS = declared(:gc).counters
    # Keys of each Hash in `gc_heaps` whose values only rise.
    GC_HEAP_COUNTERS = declared(:gc_heaps).counters
    # Keys of `jemalloc` whose values only rise, from the extension's table of mallctl keys.
    JEMALLOC_COUNTERS = declared(:jemalloc).counters

    # (see Memscope.snapshot)
    def self.read(malloc: false) = capture(Native.snapshot(check_switch(:malloc, malloc)))
  end
end
