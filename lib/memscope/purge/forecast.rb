# frozen_string_literal: true

module Memscope
  module Purge
    # What a lever will return, by what is known just before it is pulled: at least and at most, nil where that cannot
    # be said, and why.
    #
    # @api private
    Forecast = Struct.new(:min_bytes, :max_bytes, :reason) do
      class << self
        # @param lever [Symbol]
        # @param arena [Integer, nil]
        # @param ledger [Ledger] for :trim a deep one
        # @param collect [Boolean] whether the garbage may be collected first, which tells more of a compaction; without
        #   that, nothing is changed
        # @return [Forecast]
        def of(lever, arena, ledger, collect:)
          case lever
          when :gc then unknown("what is garbage is known when it has been collected")
          when :compact then compaction(collect, ledger.allocator.name)
          when :tcache then exactly(0, "what it flushes becomes unused pages, which decay and purge return")
          when :decay then decay(arena)
          when :purge then purge(arena, ledger)
          when :trim then trim(ledger)
          when :collect then collectable
          end
        end

        private

        def exactly(bytes, reason = nil) = new(bytes, bytes, reason)

        def unknown(reason) = new(nil, nil, reason)

        def compaction(collect, allocator)
          known = Compaction.forecast(Memscope.ruby_heap(collect: collect))
          trims = "free malloc memory, which Process.warmup trims too, comes on top"
          reasons = [known.reason, ("before garbage is collected" unless known.reason || collect),
                     (trims if known.min_bytes && allocator == :glibc && Process.respond_to?(:warmup))].compact
          new(known.min_bytes, known.max_bytes, reasons.empty? ? nil : reasons.join("; "))
        end

        def decay(index)
          counted(index) do |arenas|
            bytes = arenas.sum { |arena| decaying(arena, :dirty) + decaying(arena, :muzzy) }
            new(0, bytes, "how many of the unused pages have waited long enough is not known") if bytes.positive?
          end
        end

        def decaying(arena, kind) = arena.public_send(:"#{kind}_decay_ms") == -1 ? 0 : unused(arena, kind)

        # jemalloc counts unused pages that nobody has written to as well; they are among what is not resident.
        def purge(index, ledger)
          untouched = ledger.each_leaf.find { |row| row.id == :not_resident }&.bytes
          counted(index) do |arenas|
            bytes = arenas.sum { |arena| unused(arena, :dirty) + unused(arena, :muzzy) }
            new([bytes + (untouched || 0), 0].max, bytes, nil)
          end
        end

        def unused(arena, kind) = arena.public_send(:"#{kind}_bytes") || 0

        # Yields the arenas in question; without a forecast of the block's nothing is returned.
        def counted(index)
          arenas = Memscope.arenas
          return unknown(arenas.reasons.fetch(:arenas, "arenas are not known")) unless arenas.merged

          chosen = arenas.select { |arena| index.nil? || arena.index == index }
          return exactly(0, "arena #{index} is not in use yet") if chosen.empty?

          yield(chosen) || exactly(0)
        end

        def trim(ledger)
          malloc = ledger.rows.find { |row| row.id == :malloc }
          trimmable = malloc&.detail&.fetch(:trimmable_bytes, nil)
          return exactly(trimmable) if trimmable

          unknown(ledger.reasons.fetch(:deep, "glibc's heaps could not be walked"))
        end

        def collectable
          bytes = Native.collectable_bytes
          bytes ? exactly(bytes) : unknown("this allocator does not say what it holds unused")
        end
      end
    end
    private_constant :Forecast
  end
end
