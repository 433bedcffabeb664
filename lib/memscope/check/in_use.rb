# frozen_string_literal: true

module Memscope
  class Check < Reading
    # The memory in use: objects by class and bytes of their slots, blocks of malloc and their bytes (both nil if the
    # allocator does not count them), resident bytes. Reading it runs as little Ruby code as possible: YJIT takes blocks
    # of malloc for each method that it compiles.
    # @api private
    InUse = Struct.new(:objects, :slot_bytes, :blocks, :malloc_bytes, :rss_bytes) do
      # Collects garbage first. The names of classes are interned, like those of a census.
      def self.read(malloc: true)
        Native.clear_stack
        Native.collect_garbage
        blocks, malloc_bytes = of_malloc if malloc
        body = Native.census(Thread.list.size > 1, nil, nil) # collects again if other threads may have left garbage
        why = Reasons.sentences(body[:reasons]).values.join("; ")
        raise Unavailable.new(:objects_uncounted, why) unless body[:total_count]

        objects = body[:classes].to_h { |row| [-row[:name], row[:count]] }
        new(objects, body[:total_slot_bytes], blocks, malloc_bytes, Memscope.rss)
      end

      # Runs no lever under glibc: a lever would release the GVL, and other Ruby threads could run before the blocks
      # are counted.
      def self.of_malloc
        return of_glibc(Native.ledger(true, false, false, true)[:rows]) unless Native.snapshot(false)[:jemalloc]

        Native.run_lever(:tcache) # jemalloc counts the cache of this thread as allocated
        of_jemalloc(Native.snapshot(false)[:jemalloc])
      end

      # Blocks and bytes in use, or nil if this jemalloc does not count blocks.
      def self.of_jemalloc(totals)
        return unless totals[:small_nmalloc]

        [totals[:small_nmalloc] + totals[:large_nmalloc] - totals[:small_ndalloc] - totals[:large_ndalloc],
         totals[:in_use_bytes]]
      end

      # Blocks and bytes in use, or nil if glibc's chunks are not known. The rows are those of a ledger with `deep`.
      def self.of_glibc(rows)
        malloc = rows.find { |row| row[:id] == :malloc } or return
        return unless malloc[:detail][:in_use_bytes]

        heaps = %i[main_heap arenas] # whose part in use states the number
        counts = malloc[:children].map do |row|
          row = row[:children].find { |part| part[:id] == :in_use } if heaps.include?(row[:id])
          row&.dig(:detail, :blocks)
        end
        [counts.sum, malloc[:detail][:in_use_bytes]] if counts.any? && counts.all?
      end
    end
  end
end
