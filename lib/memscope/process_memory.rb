# frozen_string_literal: true

require_relative "reading"

module Memscope
  # The kernel's figures for this process, from /proc/self/smaps_rollup and /proc/self/status.
  #
  # smaps_rollup walks the page tables: exact, milliseconds per GB, and mmap and munmap in other threads wait meanwhile.
  # A figure that this kernel does not print, or hides from this process, is nil; +reasons+ says which.
  class ProcessMemory < Reading
    # @!attribute [r] rss_bytes
    #   @return [Integer, nil] resident pages, shared ones in full (Rss)
    # @!attribute [r] peak_rss_bytes
    #   @return [Integer, nil] the highest RSS since the process began or its peak was reset (VmHWM)
    # @!attribute [r] pss_bytes
    #   @return [Integer, nil] each resident page divided by the number of processes that map it (Pss)
    # @!attribute [r] uss_bytes
    #   @return [Integer, nil] pages that only this process maps: Private_Clean + Private_Dirty
    # @!attribute [r] pss_anonymous_bytes
    #   @return [Integer, nil] Pss_Anon
    # @!attribute [r] pss_file_bytes
    #   @return [Integer, nil] Pss_File
    # @!attribute [r] pss_shared_memory_bytes
    #   @return [Integer, nil] Pss_Shmem
    # @!attribute [r] pss_dirty_bytes
    #   @return [Integer, nil] Pss_Dirty (Linux 6.0)
    # @!attribute [r] shared_clean_bytes
    #   @return [Integer, nil] Shared_Clean
    # @!attribute [r] shared_dirty_bytes
    #   @return [Integer, nil] Shared_Dirty
    # @!attribute [r] private_clean_bytes
    #   @return [Integer, nil] Private_Clean
    # @!attribute [r] private_dirty_bytes
    #   @return [Integer, nil] Private_Dirty
    # @!attribute [r] referenced_bytes
    #   @return [Integer, nil] pages marked as accessed (Referenced)
    # @!attribute [r] anonymous_bytes
    #   @return [Integer, nil] resident pages without a file (Anonymous)
    # @!attribute [r] file_bytes
    #   @return [Integer, nil] resident pages of files (RssFile)
    # @!attribute [r] shared_memory_bytes
    #   @return [Integer, nil] resident pages of shared memory and tmpfs (RssShmem)
    # @!attribute [r] lazy_free_bytes
    #   @return [Integer, nil] freed with MADV_FREE, resident until the kernel reclaims them (LazyFree)
    # @!attribute [r] anonymous_huge_bytes
    #   @return [Integer, nil] resident as transparent huge pages (AnonHugePages)
    # @!attribute [r] swap_bytes
    #   @return [Integer, nil] swapped out (Swap)
    # @!attribute [r] swap_pss_bytes
    #   @return [Integer, nil] swapped out, divided among the processes that share it (SwapPss)
    # @!attribute [r] locked_bytes
    #   @return [Integer, nil] locked in memory (Locked)
    # @!attribute [r] page_tables_bytes
    #   @return [Integer, nil] the kernel's page tables for this process (VmPTE); not in RSS
    # @!attribute [r] hugetlb_bytes
    #   @return [Integer, nil] pages of hugetlbfs (HugetlbPages); not in RSS
    # @!attribute [r] virtual_bytes
    #   @return [Integer, nil] address space (VmSize)
    # @!attribute [r] peak_virtual_bytes
    #   @return [Integer, nil] peak address space (VmPeak)

    fields_of :bytes, %i[rss_bytes peak_rss_bytes pss_bytes uss_bytes pss_anonymous_bytes pss_file_bytes
                         pss_shared_memory_bytes pss_dirty_bytes shared_clean_bytes shared_dirty_bytes
                         private_clean_bytes private_dirty_bytes referenced_bytes anonymous_bytes file_bytes
                         shared_memory_bytes lazy_free_bytes anonymous_huge_bytes swap_bytes swap_pss_bytes locked_bytes
                         page_tables_bytes hugetlb_bytes virtual_bytes peak_virtual_bytes]

    # @return [Integer, nil] kernel threads, Ruby's included
    field :threads, :count
    # @return [Boolean, nil] whether this process may have transparent huge pages (THP_enabled); CRuby disables them
    field :thp_enabled?, :boolean

    # (see Memscope.process_memory)
    def self.read = capture(Native.process_memory("self"))

    # @return [Integer, nil] pages that another process maps too: Shared_Clean + Shared_Dirty
    def shared_bytes = shared_clean_bytes && shared_dirty_bytes && (shared_clean_bytes + shared_dirty_bytes)
  end
end
