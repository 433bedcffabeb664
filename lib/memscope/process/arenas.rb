# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # One arena of the allocator: an independent heap with its own locks.
  #
  # The numbers are the allocator's own (jemalloc's stats.arenas.<i>, glibc's malloc_info), except glibc's
  # `resident_bytes`. A number that the allocator does not count is nil, and not in `to_h`.
  class Arena < Record
    alias id index

    # The columns of a table of arenas, by allocator: heading => field.
    COLUMNS = {
      jemalloc: { "threads" => :threads, "allocated" => :allocated_bytes, "active" => :active_bytes,
                  "dirty" => :dirty_bytes, "muzzy" => :muzzy_bytes, "retained" => :retained_bytes,
                  "metadata" => :metadata_bytes, "caches" => :tcache_bytes }.freeze,
      glibc: { "heaps" => :heaps, "resident" => :resident_bytes, "allocated" => :allocated_bytes, "free" => :free_bytes,
               "fast" => :fast_bytes, "system" => :system_bytes, "peak" => :system_max_bytes,
               "free blocks" => :free_blocks }.freeze
    }.freeze

    # The fields that metrics export for each arena.
    LEVELS = %i[allocated_bytes active_bytes dirty_bytes muzzy_bytes retained_bytes resident_bytes metadata_bytes
                tcache_bytes threads system_bytes free_bytes fast_bytes].freeze

    # For all arenas together jemalloc returns the decay time -1, which means nothing.
    def self.capture(body)
      body = body.except(:dirty_decay_ms, :muzzy_decay_ms) unless body[:index]
      system, free, fast, small, large = body.values_at(:system_bytes, :free_bytes, :fast_bytes, :small_allocated_bytes,
                                                        :large_allocated_bytes)
      allocated = small && large && (small + large)
      allocated = [system - free - fast.to_i, 0].max if system && free
      base, internal = body.values_at(:base_bytes, :internal_bytes)
      super({ **body, allocated_bytes: allocated, metadata_bytes: base && internal && (base + internal) })
    end
  end

  # The allocator's arenas that are in use.
  #
  #   Memscope.arenas.max_by(&:dirty_bytes).index  # => 3
  class Arenas < Reading
    include Lookup

    include Collection

    # (see Memscope.arenas)
    def self.read(native: Native) = capture(native.arenas(true))

    # Tier T1 under jemalloc. Elsewhere tier T2, hence read only at an interval (seconds), and not at all without one.
    # @api private
    def self.read_for_metrics(cache, interval)
      return read if Native.allocator[:name] == :jemalloc

      cache.fetch(interval) { read } if interval
    end

    # @param arena [Arena] one of these arenas, or `merged`
    # @return [String] for people: "3", "huge 3", "main" or "all"
    def label(arena)
      return "all" unless arena.index

      allocator == :glibc && arena.index.zero? ? "main" : "#{'huge ' if arena.huge?}#{arena.index}"
    end

    # @api private
    # @return [Hash{Integer => Integer}] by the arenas' indexes, without arenas that do not have the number
    def level(name) = arenas.to_h { |arena| [arena.index, arena.public_send(name)] }.compact

    # @api private
    # @return [Hash{Symbol => Hash{Integer => Integer}}] the levels (of Arena::LEVELS) that any arena has
    def levels = Arena::LEVELS.to_h { |name| [name, level(name)] }.reject { |_name, numbers| numbers.empty? }
  end
end
