# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # glibc keeps free memory in the arena that it came from. A trim returns the whole pages in it, but not the parts
      # of pages between used blocks.
      GLIBC_RULES = table(
        { inapplicable: GLIBC },
        trimmable: {
          subject: "trimmable memory",
          affected: :trimmable_bytes,
          floor: FLOOR, ratio: 0.10,
          severity: lambda do |f|
            bytes = f.trimmable_bytes
            much = f.of_rss(bytes) >= 0.45 * f.margin && bytes >= 2 * FLOOR * f.margin
            much || bytes > 1.36 * f.margin * f.gc_room ? :warning : :info
          end,
          recoverable: :trimmable_bytes,
          title: ->(_, bytes) { "#{size(bytes)} is free inside malloc; a trim returns it" },
          explanation: lambda do |f, bytes|
            "#{percent(f.of_rss(bytes))} of RSS is whole pages inside free blocks. On its own, glibc returns only " \
              "memory at the end of its heap. Ruby lets malloc grow by #{size(f.gc_room)} before it collects " \
              "garbage: up to that much of it may be normal headroom between collections."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, trimmable_bytes: f.trimmable_bytes, gc_room_bytes: f.gc_room,
              main_heap_bytes: f.detail(:malloc, :main_heap, :free, :trimmable_bytes),
              arenas_bytes: f.detail(:malloc, :arenas, :free, :trimmable_bytes), arenas: f.glibc_arenas }
          end,
          remedy: lambda do |f|
            [purge(f, :trim), "takes about #{milliseconds(f.bytes(:malloc) / 4000)}, during which threads " \
                              "that call malloc wait; pages used again fault back in"]
          end
        },
        glibc_arenas: {
          subject: "too many glibc arenas",
          affected: ->(f) { f.unreturnable_bytes(:arenas) },
          present: ->(f) { f.glibc_arenas > 2 && f.unreturnable_bytes(:arenas) >= 0.25 * f.bytes(:malloc, :arenas) },
          floor: FLOOR, ratio: 0.10, confidence: :likely,
          recoverable: "It is parts of pages between used blocks, which only the same arena can reuse: a trim " \
                       "returns none of it.",
          title: ->(f, bytes) { "#{size(bytes)} is free in #{f.glibc_arenas} arenas, where few threads can use it" },
          explanation: lambda do |f, bytes|
            "Each thread allocates from one arena and cannot use memory that is free in another: " \
              "#{percent(bytes.fdiv(f.bytes(:malloc, :arenas)))} of the #{size(f.bytes(:malloc, :arenas))} in " \
              "#{f.glibc_arenas} arenas, for #{f.threads || 'an unknown number of'} threads; only one of them runs " \
              "Ruby at a time."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, arenas: f.glibc_arenas, threads: f.threads, processors: f.environment.cpus,
              arenas_bytes: f.bytes(:malloc, :arenas), in_use_bytes: f.bytes(:malloc, :arenas, :in_use),
              free_bytes: f.bytes(:malloc, :arenas, :free),
              thread_cache_bytes: f.bytes(:malloc, :arenas, :thread_caches) }
          end,
          remedy: ["MALLOC_ARENA_MAX=2",
                   "requires a restart; native threads that allocate without the GVL may contend for arena locks"]
        },
        glibc_holes: {
          subject: "free memory between used blocks",
          affected: ->(f) { f.unreturnable_bytes(:main_heap) },
          floor: 2 * FLOOR, ratio: 0.30, confidence: :likely,
          recoverable: "It is parts of pages between used blocks: a trim returns none of it.",
          title: ->(_, bytes) { "#{size(bytes)} is free between used blocks; no trim returns it" },
          explanation: lambda do |f, bytes|
            "#{percent(f.of_rss(bytes))} of RSS is free parts of pages in the main heap. malloc reuses them for " \
              "blocks that fit; a page returns to the kernel only when all blocks in it are free."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, main_heap_bytes: f.bytes(:malloc, :main_heap),
              in_use_bytes: f.bytes(:malloc, :main_heap, :in_use), free_bytes: f.bytes(:malloc, :main_heap, :free),
              free_blocks: f.detail(:malloc, :main_heap, :free, :blocks) }
          end,
          remedy: ["memscope exec -- COMMAND",
                   "requires a restart under jemalloc, which keeps blocks of one size together"]
        }
      )
      private_constant :GLIBC_RULES
    end
  end
end
