# frozen_string_literal: true

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
    # (see Memscope.snapshot)
    def self.read(malloc: false, native: Native) = capture(native.snapshot(check_switch(:malloc, malloc)))
  end
end
