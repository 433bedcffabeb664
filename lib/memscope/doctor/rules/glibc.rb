# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # glibc keeps free memory in the arena that it came from. What lies in whole pages goes back with a trim; what
      # lies between blocks in use does not.
      GLIBC_RULES = [
        Rule.new(
          id: :trimmable,
          subject: "trimmable memory",
          inapplicable: GLIBC,
          affected: :trimmable_bytes,
          floor: FLOOR, ratio: 0.10,
          severity: lambda do |f|
            bytes = f.trimmable_bytes
            (f.of_rss(bytes) >= 0.5 && bytes >= 2 * FLOOR) || bytes > 1.5 * f.gc_room ? :warning : :info
          end,
          recoverable: :trimmable_bytes,
          title: ->(_, bytes) { "#{size(bytes)} are free inside malloc, and a trim returns them" },
          explanation: lambda do |f, bytes|
            "#{percent(f.of_rss(bytes))} of the RSS are whole pages inside free blocks. glibc gives back by itself " \
              "only what is free at the end of its heap. Between two collections Ruby lets malloc grow by " \
              "#{size(f.gc_room)}: up to that it may be room in use."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, trimmable_bytes: f.trimmable_bytes, gc_room_bytes: f.gc_room,
              main_heap_bytes: f.detail(:malloc, :main_heap, :free, :trimmable_bytes),
              arenas_bytes: f.detail(:malloc, :arenas, :free, :trimmable_bytes), arenas: f.glibc_arenas }
          end,
          remedy: "Memscope.purge(:trim)",
          remedy_cost: lambda do |f|
            "about #{milliseconds(f.bytes(:malloc) / 4000)}, in which threads wait for malloc; what is used again " \
              "has to be faulted in"
          end
        ),
        Rule.new(
          id: :glibc_arenas,
          subject: "too many glibc arenas",
          inapplicable: GLIBC,
          affected: ->(f) { f.held_open_bytes(:arenas) },
          present: ->(f) { f.glibc_arenas > 2 && f.held_open_bytes(:arenas) >= 0.25 * f.bytes(:malloc, :arenas) },
          floor: FLOOR, ratio: 0.10,
          confidence: :likely,
          recoverable: "It lies in pieces of pages between blocks in use, each in the one arena that can give it out " \
                       "again: a trim returns none of it.",
          title: ->(f, bytes) { "#{size(bytes)} are free in #{f.glibc_arenas} arenas, where few threads can use them" },
          explanation: lambda do |f, bytes|
            "Each thread allocates from its own arena, and what is free in one is of no use to the others: " \
              "#{percent(bytes.fdiv(f.bytes(:malloc, :arenas)))} of the #{size(f.bytes(:malloc, :arenas))} in " \
              "#{f.glibc_arenas} arenas, for #{f.threads || 'an unknown number of'} threads of which one at a time " \
              "runs Ruby."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, arenas: f.glibc_arenas, threads: f.threads, processors: f.environment.cpus,
              arenas_bytes: f.bytes(:malloc, :arenas), in_use_bytes: f.bytes(:malloc, :arenas, :in_use),
              free_bytes: f.bytes(:malloc, :arenas, :free),
              thread_cache_bytes: f.bytes(:malloc, :arenas, :thread_caches) }
          end,
          remedy: "MALLOC_ARENA_MAX=2",
          remedy_cost: "a restart; C code that allocates in several threads without the GVL may wait for itself"
        ),
        Rule.new(
          id: :glibc_holes,
          subject: "free memory between blocks",
          inapplicable: GLIBC,
          affected: ->(f) { f.held_open_bytes(:main_heap) },
          floor: 2 * FLOOR, ratio: 0.30,
          confidence: :likely,
          recoverable: "It lies in pieces of pages between blocks in use: a trim returns none of it.",
          title: ->(_, bytes) { "#{size(bytes)} are free between blocks in use, and no trim returns them" },
          explanation: lambda do |f, bytes|
            "#{percent(f.of_rss(bytes))} of the RSS are free pieces of pages in the main heap. malloc gives them out " \
              "again for blocks that fit; to the system they go only when what keeps their pages is freed."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, main_heap_bytes: f.bytes(:malloc, :main_heap),
              in_use_bytes: f.bytes(:malloc, :main_heap, :in_use), free_bytes: f.bytes(:malloc, :main_heap, :free),
              free_blocks: f.detail(:malloc, :main_heap, :free, :blocks) }
          end,
          remedy: "memscope exec -- COMMAND",
          remedy_cost: "a restart, under jemalloc, which keeps blocks of one size together"
        )
      ].freeze
      private_constant :GLIBC_RULES
    end
  end
end
