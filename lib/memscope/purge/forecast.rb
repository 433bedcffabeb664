# frozen_string_literal: true

require_relative "../arenas"
require_relative "../ruby_heap/compaction_forecast"

module Memscope
  module Purge
    # The prediction, made just before a lever runs, of what it returns: a Range of bytes, or nil if that is unknown,
    # and why the prediction is missing or a range.
    #
    # @api private
    Forecast = Struct.new(:bytes, :reason) do
      class << self
        # @param lever [Symbol]
        # @param arena [Integer, nil]
        # @param ledger [Ledger] a deep one for :trim
        # @param collect [Boolean] whether to collect garbage first, which narrows the forecast of a compaction; if
        #   false, the forecast changes nothing in the process
        # @return [Forecast]
        def of(lever, arena, ledger, collect:)
          case lever
          when :gc then new(nil, "cannot be predicted: garbage is only known after a collection")
          when :compact then compaction(collect, ledger.allocator.name)
          when :tcache then new(0..0, "flushed blocks become unused pages, which decay and purge return")
          when :decay then decay(arena)
          when :purge then purge(arena, ledger)
          when :trim then trim(ledger)
          when :collect then collectable
          end
        end

        private

        def compaction(collect, allocator)
          known = RubyHeap::CompactionForecast.new(collect ? RubyHeap.read(collect: true) : RubyHeap.bounded)
          trims = "Process.warmup also trims free malloc memory, which is not included"
          reasons = [known.reason, ("before garbage is collected" unless known.reason || collect),
                     (trims if known.range && allocator == :glibc && Process.respond_to?(:warmup))].compact
          new(known.range, (reasons.join("; ") if reasons.any?))
        end

        def decay(index)
          of_arenas(index) do |arenas|
            bytes = arenas.sum { |arena| decaying(arena, :dirty) + decaying(arena, :muzzy) }
            new(0..bytes, ("it is unknown which unused pages have reached their decay time" if bytes.positive?))
          end
        end

        def decaying(arena, kind) = arena.public_send(:"#{kind}_decay_ms") == -1 ? 0 : unused(arena, kind)

        # jemalloc's unused pages include pages never written to; the row :not_resident, never positive, has those too.
        def purge(index, ledger)
          untouched = ledger.each_leaf.find { |row| row.id == :not_resident }&.bytes || 0
          of_arenas(index) do |arenas|
            bytes = arenas.sum { |arena| unused(arena, :dirty) + unused(arena, :muzzy) }
            new([bytes + untouched, 0].max..bytes)
          end
        end

        def unused(arena, kind) = arena.public_send(:"#{kind}_bytes") || 0

        # Yields the arenas that the lever runs for: all, or the one of the index.
        def of_arenas(index)
          arenas = Arenas.read
          return new(nil, arenas.reasons.fetch(:arenas, "arenas are unknown")) unless arenas.merged

          chosen = arenas.select { |arena| index.nil? || arena.index == index }
          chosen.empty? ? new(0..0, "arena #{index} is not in use yet") : yield(chosen)
        end

        def trim(ledger)
          bytes = ledger.rows.find { |row| row.id == :malloc }&.detail&.fetch(:trimmable_bytes, nil)
          return new(bytes..bytes) if bytes

          new(nil, ledger.reasons.fetch(:deep, "glibc's heaps could not be walked"))
        end

        def collectable
          bytes = Native.collectable_bytes
          bytes ? new(bytes..bytes) : new(nil, "this allocator does not report its unused memory")
        end
      end
    end
    private_constant :Forecast
  end
end
