# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # The remedy if a server's workers share what a trim would return: trim in the master, before it forks.
      BEFORE_FORK = ["before_fork { GC.start; Memscope.purge(:trim) } # config/puma.rb: in the master",
                     "requires a restart; delays the start of the workers"].freeze

      # What the free memory may be for.
      HEADROOM = lambda do |f|
        limits = f.environment.raised(:malloc).map { |text| " (#{text})" }.join
        "Ruby lets malloc grow by #{size(f.gc_room)} before Ruby collects garbage#{limits}, so up to that much of " \
          "this free memory may be normal headroom between collections."
      end

      # glibc keeps free memory in the arena that it came from. A trim returns free memory in whole pages, but not the
      # free parts of pages between used blocks.
      GLIBC_RULES = table(
        { inapplicable: GLIBC },
        malloc_thp: {
          subject: "malloc in huge pages",
          inapplicable: lambda do |f|
            GLIBC.call(f) || ("malloc asks for no huge pages" unless f.malloc_asks_for_huge_pages?)
          end,
          affected: :unused_huge_bytes,
          floor: FLOOR, ratio: 0.10, confidence: :likely,
          severity: ->(f) { f.reaches?(f.unused_huge_bytes - f.trimmable_bytes, FLOOR) ? :warning : :info },
          recoverable: "It is unknown which of these pages would be resident without huge pages.",
          title: ->(_, bytes) { "up to #{size(bytes)} is resident because malloc asked for huge pages" },
          explanation: lambda do |f|
            "All 2 MiB of a huge page are resident, however little of it is used. glibc asks for them for all of its " \
              "heap (glibc.malloc.hugetlb=1, or its default since 2.43, at least on arm64): " \
              "#{size(f.process_memory.anonymous_huge_bytes)} is in huge pages, and #{size(f.unused_bytes)} of " \
              "malloc is resident but unused."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, unused_bytes: f.unused_bytes, version: f.allocator.version,
              hugetlb: f.setting(:hugetlb), **HUGE.call(f) }
          end,
          remedy: ["GLIBC_TUNABLES=glibc.malloc.hugetlb=0", "requires a restart; causes more TLB misses"]
        },
        trimmable: {
          subject: "trimmable memory",
          affected: :free_page_bytes,
          floor: FLOOR, ratio: 0.10,
          severity: lambda do |f|
            bytes = f.trim_gain.is_a?(Range) ? f.trim_gain.end : 0
            much = f.reaches?(f.of_rss(bytes), 0.45) && f.reaches?(bytes, 2 * FLOOR)
            much || f.reaches?(bytes, 1.36 * f.gc_room) ? :warning : :info
          end,
          recoverable: :trim_gain,
          title: lambda do |f, bytes|
            gains = case f.trim_gain
                    when String then "the kernel does not take it back"
                    else f.trims_shared? ? "other processes share most of it" : "a trim returns it"
                    end
            "#{size(bytes)} is free inside malloc; #{gains}"
          end,
          explanation: lambda do |f, bytes|
            text = "#{percent(f.of_rss(bytes))} of RSS is whole pages inside free blocks. On its own, glibc returns " \
                   "only memory at the end of its heap."
            text += " #{HEADROOM.call(f)}" unless f.collector.off
            next text unless f.trims_shared?

            "#{text} A trim of this process leaves shared pages in memory for the other processes."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, trimmable_bytes: f.trimmable_bytes, gc_room_bytes: f.gc_room,
              trimmable_private_bytes: f.detail(:malloc, :trimmable_private_bytes),
              locked_bytes: f.detail(:malloc, :locked_bytes),
              main_heap_bytes: f.detail(:malloc, :main_heap, :free, :trimmable_bytes),
              arenas_bytes: f.detail(:malloc, :arenas, :free, :trimmable_bytes), arenas: f.glibc_arenas }
          end,
          remedy: lambda do |f|
            next if f.trim_gain.is_a?(String)
            next BEFORE_FORK if f.trims_shared?

            [purge(f, :trim), "takes about #{milliseconds(f.bytes(:malloc) / 4000)}, during which threads " \
                              "that call malloc wait; pages that are used again fault back in"]
          end
        },
        glibc_arenas: {
          subject: "too many glibc arenas",
          affected: ->(f) { f.unreturnable_bytes(:arenas) },
          present: lambda do |f|
            f.glibc_arenas > 2 && f.reaches?(f.unreturnable_bytes(:arenas), 0.25 * f.bytes(:malloc, :arenas))
          end,
          floor: FLOOR, ratio: 0.10, confidence: :likely,
          recoverable: lambda do |f|
            between_blocks(f, "The free memory is parts of pages between used blocks: only the same arena can reuse " \
                              "these parts, and no trim returns them.")
          end,
          title: ->(f, bytes) { "#{size(bytes)} is free in #{f.glibc_arenas} arenas, where few threads can use it" },
          explanation: lambda do |f, bytes|
            "Each thread allocates from one arena and cannot use memory that is free in another. " \
              "#{percent(bytes.fdiv(f.bytes(:malloc, :arenas)))} of the #{size(f.bytes(:malloc, :arenas))} in " \
              "#{f.glibc_arenas} arenas is free between used blocks. Of #{f.threads || 'an unknown number of'} " \
              "threads, only one runs Ruby at a time."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, arenas: f.glibc_arenas, threads: f.threads, processors: f.environment.cpus,
              arenas_bytes: f.bytes(:malloc, :arenas), in_use_bytes: f.bytes(:malloc, :arenas, :in_use),
              free_bytes: f.bytes(:malloc, :arenas, :free),
              thread_cache_bytes: f.bytes(:malloc, :arenas, :thread_caches) }
          end,
          remedy: lambda do |f|
            after_collection(f, "MALLOC_ARENA_MAX=2",
                             "requires a restart; threads that allocate without the GVL may contend for arena locks")
          end
        },
        glibc_holes: {
          subject: "free memory in partly used pages",
          affected: ->(f) { f.unreturnable_bytes(:main_heap) },
          floor: 2 * FLOOR, ratio: 0.30, confidence: :likely,
          recoverable: lambda do |f|
            between_blocks(f, "The free memory is in partly used pages, between used blocks: no trim returns it.")
          end,
          title: lambda do |f, bytes|
            "#{size(bytes)} is free between used blocks; " \
              "#{unjudged(f) ? 'some of these blocks may be garbage' : 'no trim returns it'}"
          end,
          explanation: lambda do |f, bytes|
            "#{percent(f.of_rss(bytes))} of RSS is free memory in partly used pages of the main heap. malloc reuses " \
              "it for blocks that fit; a page returns to the kernel only when all blocks in it are free."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, main_heap_bytes: f.bytes(:malloc, :main_heap),
              in_use_bytes: f.bytes(:malloc, :main_heap, :in_use), free_bytes: f.bytes(:malloc, :main_heap, :free),
              free_blocks: f.detail(:malloc, :main_heap, :free, :blocks) }
          end,
          remedy: lambda do |f|
            after_collection(f, "memscope exec -- COMMAND",
                             "requires a restart under jemalloc, which keeps blocks of one size together")
          end
        }
      )
      private_constant :BEFORE_FORK, :HEADROOM, :GLIBC_RULES
    end
  end
end
