# frozen_string_literal: true

module Memscope
  module Metrics
    # What is exported of arenas.
    #
    # @api private
    module ArenaLevels
      # Levels of one arena: the method of Arena, and the name, are one word; help. What the allocator that serves
      # malloc does not count gives no sample.
      HELP = {
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

      # @param arenas [Array<Arena>]
      # @param name [Symbol] of HELP
      # @return [Hash{Integer => Integer}] by index, of those that count it
      def self.level(arenas, name)
        arenas.filter_map { |arena| (number = arena.public_send(name)) && [arena.index, number] }.to_h
      end

      # @param arenas [Array<Arena>]
      # @return [Hash{Symbol => Hash{Integer => Integer}}] all levels that any arena counts
      def self.all(arenas)
        HELP.keys.to_h { |name| [name, level(arenas, name)] }.reject { |_name, numbers| numbers.empty? }
      end
    end
  end
end
