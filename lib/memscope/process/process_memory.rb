# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # The kernel's figures for this process, from /proc/self/smaps_rollup and /proc/self/status.
  #
  # To print smaps_rollup, the kernel walks the page tables: this is exact, takes milliseconds per GB, and makes mmap
  # and munmap in other threads wait. A figure that this kernel does not print, or hides from this process, is nil;
  # +reasons+ has the reason.
  class ProcessMemory < Reading
    # (see Memscope.process_memory)
    def self.read(native: Native) = capture(native.process_memory(native.process))

    # @return [Integer, nil] pages that another process maps too: Shared_Clean + Shared_Dirty
    def shared_bytes = shared_clean_bytes && shared_dirty_bytes && (shared_clean_bytes + shared_dirty_bytes)
  end
end
