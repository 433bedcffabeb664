# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # The remedy if a server's workers share what a trim would return: trim in the master, before it forks.
      BEFORE_FORK = ["before_fork { GC.start; Memscope.purge(:trim) } # config/puma.rb: in the master",
                     "#{RESTART}; delays the start of the workers"].freeze
      SHARED_TRIM = "A trim of this process leaves shared pages in memory for the other processes."
      WHOLE_PAGES = "All 2 MiB of a huge page are resident, however little of it is used."
      UNKNOWN_WITHOUT_HUGE = "It is unknown which of these pages would be resident without huge pages."

      # glibc keeps free memory in the arena that it came from. A trim returns free memory in whole pages, but not the
      # free parts of pages between used blocks.
      rule(:malloc_thp, "malloc in huge pages",
           -> { [unused_bytes, anonymous_huge_bytes].then { |all| all.min if all.all? } },
           inapplicable: lambda do
             without_glibc || ("malloc asks for no huge pages" unless malloc_asks_for_huge_pages?)
           end, floor: FLOOR, ratio: 0.10) do |bytes|
        { title: "up to #{size(bytes)} is resident because malloc asked for huge pages",
          severity: reaches?(bytes - trimmable_bytes, FLOOR) ? :warning : :info,
          why: "#{WHOLE_PAGES} glibc asks for them (glibc.malloc.hugetlb=1, or its default " \
               "since 2.43, at least on arm64): #{size(unused_bytes)} of malloc is resident but unused.",
          confidence: :likely, returns: UNKNOWN_WITHOUT_HUGE,
          remedy: ["GLIBC_TUNABLES=glibc.malloc.hugetlb=0", "#{RESTART}; causes more TLB misses"] }
      end

      rule(:trimmable, "trimmable memory", -> { trimmable_bytes&.+(kept_by_kernel_bytes) },
           inapplicable: :without_glibc, floor: FLOOR, ratio: 0.10) do |bytes|
        kept = trimmable_bytes < kept_by_kernel_bytes / 16
        own = detail(:malloc, :trimmable_private_bytes)
        shared = (own || trimmable_bytes) < trimmable_bytes / 2
        gain = own ? (own..own) : gained(:malloc, trimmable_bytes)
        gain = "#{ledger.kept_reason}." if kept
        most = kept ? 0 : gain.end
        much = reaches?(of_rss(most), 0.45) && reaches?(most, 2 * FLOOR)
        outcome = shared ? "other processes share most of it" : "a trim returns it"
        outcome = "the kernel does not take it back" if kept
        why = ["#{percent(of_rss(bytes))} of RSS is whole pages inside free " \
               "blocks. On its own, glibc returns only memory at the end of its " \
               "heap.",
               headroom, (SHARED_TRIM if shared)]
        trim = [command("purge", "trim"),
                "takes about #{milliseconds(row_bytes(:malloc) / 4000)}, during " \
                "which threads that call malloc wait; pages that are used again " \
                "fault back in"]
        { title: "#{size(bytes)} is free inside malloc; #{outcome}", why: why, returns: gain,
          severity: much || reaches?(most, 1.36 * gc_room) ? :warning : :info,
          remedy: ({ true => BEFORE_FORK, false => trim }[shared] unless kept) }
      end

      rule(:glibc_arenas, "too many glibc arenas", -> { unreturnable_bytes(:arenas) },
           inapplicable: :without_glibc, floor: FLOOR, ratio: 0.10) do |bytes|
        arenas = detail(:malloc, :arenas, :arenas) || 0
        all = row_bytes(:malloc, :arenas)
        next unless arenas > 2 && reaches?(bytes, 0.25 * all)

        { title: "#{size(bytes)} is free in #{arenas} arenas, where few threads can use it",
          why: "Each thread allocates from one arena and cannot use memory that is " \
               "free in another. #{percent(bytes.fdiv(all))} of the #{size(all)} " \
               "in the arenas is free between used blocks, and only one thread " \
               "runs Ruby at a time.",
          confidence: :likely, returns: between_blocks("Only parts of pages are free: no trim returns them."),
          remedy: after_collection("MALLOC_ARENA_MAX=2",
                                   "#{RESTART}; threads without the GVL may " \
                                   "contend for arena locks"),
          evidence: { arenas: arenas, arenas_bytes: all, threads: threads } }
      end

      rule(:glibc_holes, "free memory in partly used pages", -> { unreturnable_bytes(:main_heap) },
           inapplicable: :without_glibc, floor: 2 * FLOOR, ratio: 0.30) do |bytes|
        { title: "#{size(bytes)} is free between used blocks; " \
                 "#{unjudged ? 'some of these blocks may be garbage' : 'no trim returns it'}",
          why: "#{percent(of_rss(bytes))} of RSS is free memory in partly used " \
               "pages of the main heap. malloc reuses it for blocks that fit; a " \
               "page returns to the kernel only when all blocks in it are free.",
          confidence: :likely, returns: between_blocks("Only parts of pages are free: no trim returns them."),
          remedy: after_collection("memscope exec -- COMMAND", "#{RESTART} under jemalloc, which keeps blocks of " \
                                                               "one size together") }
      end
      private_constant :BEFORE_FORK, :SHARED_TRIM, :WHOLE_PAGES, :UNKNOWN_WITHOUT_HUGE
    end
  end
end
