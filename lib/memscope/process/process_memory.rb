# frozen_string_literal: true

require_relative "../value/reading"

module Memscope
  # The kernel's figures for this process, from /proc/self/smaps_rollup and /proc/self/status.
  #
  # To print smaps_rollup, the kernel walks the page tables: this is exact, takes milliseconds per GB, and makes mmap
  # and munmap in other threads wait. A figure that this kernel does not print, or hides from this process, is nil;
  # +reasons+ says why.
  class ProcessMemory < Reading
    # @return [Integer, nil] resident pages, shared ones in full (Rss)
    field :rss_bytes, :bytes
    # @return [Integer, nil] the highest RSS since the process began or its peak was reset (VmHWM)
    field :peak_rss_bytes, :bytes
    # @return [Integer, nil] each resident page divided by the number of processes that map it (Pss)
    field :pss_bytes, :bytes
    # @return [Integer, nil] pages that only this process maps: Private_Clean + Private_Dirty
    field :uss_bytes, :bytes
    # @return [Integer, nil] Pss_Anon
    field :pss_anonymous_bytes, :bytes
    # @return [Integer, nil] Pss_File
    field :pss_file_bytes, :bytes
    # @return [Integer, nil] Pss_Shmem
    field :pss_shared_memory_bytes, :bytes
    # @return [Integer, nil] Pss_Dirty (Linux 6.0)
    field :pss_dirty_bytes, :bytes
    # @return [Integer, nil] Shared_Clean
    field :shared_clean_bytes, :bytes
    # @return [Integer, nil] Shared_Dirty
    field :shared_dirty_bytes, :bytes
    # @return [Integer, nil] Private_Clean
    field :private_clean_bytes, :bytes
    # @return [Integer, nil] Private_Dirty
    field :private_dirty_bytes, :bytes
    # @return [Integer, nil] pages marked as accessed (Referenced)
    field :referenced_bytes, :bytes
    # @return [Integer, nil] resident pages without a file (Anonymous)
    field :anonymous_bytes, :bytes
    # @return [Integer, nil] resident pages of files (RssFile)
    field :file_bytes, :bytes
    # @return [Integer, nil] resident pages of shared memory and tmpfs (RssShmem)
    field :shared_memory_bytes, :bytes
    # @return [Integer, nil] freed with MADV_FREE, resident until the kernel reclaims them (LazyFree)
    field :lazy_free_bytes, :bytes
    # @return [Integer, nil] resident as transparent huge pages (AnonHugePages)
    field :anonymous_huge_bytes, :bytes
    # @return [Integer, nil] swapped out (Swap)
    field :swap_bytes, :bytes
    # @return [Integer, nil] swapped out, divided among the processes that share it (SwapPss)
    field :swap_pss_bytes, :bytes
    # @return [Integer, nil] locked in memory (Locked)
    field :locked_bytes, :bytes
    # @return [Integer, nil] the kernel's page tables for this process (VmPTE); not in RSS
    field :page_tables_bytes, :bytes
    # @return [Integer, nil] pages of hugetlbfs (HugetlbPages); not in RSS
    field :hugetlb_bytes, :bytes
    # @return [Integer, nil] address space (VmSize)
    field :virtual_bytes, :bytes
    # @return [Integer, nil] peak address space (VmPeak)
    field :peak_virtual_bytes, :bytes
    # @return [Integer, nil] OS threads, Ruby's included
    field :threads, :count
    # @return [Boolean, nil] whether this process may have transparent huge pages (THP_enabled); CRuby disables them
    field :thp_enabled?, :boolean

    # (see Memscope.process_memory)
    def self.read = capture(Native.process_memory("self"))

    # @return [Integer, nil] pages that another process maps too: Shared_Clean + Shared_Dirty
    def shared_bytes = shared_clean_bytes && shared_dirty_bytes && (shared_clean_bytes + shared_dirty_bytes)
  end
end
