# frozen_string_literal: true

require_relative "definition"

module Memscope
  module Metrics
    # Levels of one arena: the method of Arena, and the name, are one word; help. What the allocator that serves malloc
    # does not count gives no sample.
    ARENA_LEVELS = {
      allocated_bytes: "Given out by the arena",
      active_bytes: "In its pages that hold something given out (jemalloc)",
      dirty_bytes: "Free pages that it keeps resident (jemalloc)",
      muzzy_bytes: "Free pages that it keeps until the kernel wants them (jemalloc)",
      retained_bytes: "Address space that it keeps (jemalloc)",
      resident_bytes: "The most that it can have resident (jemalloc)",
      metadata_bytes: "What it needs for itself (jemalloc)",
      tcache_bytes: "Free in caches of the threads that use it (jemalloc)",
      threads: "Threads assigned to it (jemalloc)",
      system_bytes: "What it has from the kernel (glibc)",
      free_bytes: "Free blocks in it (glibc)",
      fast_bytes: "Free blocks of small sizes, which are not merged (glibc)"
    }.freeze

    OF_ARENAS = ARENA_LEVELS.map do |name, help|
      Definition.new("arena_#{name}", help, source: :arenas, labels: %i[arena], read: lambda { |reading|
        reading.arenas.to_h { |arena| [arena.index, arena.public_send(name)] }
      })
    end.freeze
    private_constant :ARENA_LEVELS, :OF_ARENAS
  end
end
