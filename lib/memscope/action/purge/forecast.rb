# frozen_string_literal: true

require_relative "../../process/ruby_heap/compaction_forecast"
Memscope::Loading.unit :Arenas

module Memscope
  module Purge
    # The levers that hold the GVL.
    HOLDING_GVL = RubyHeap::FULL_GCS.keys.freeze
    # In milliseconds: a lever that is predicted to stop Ruby for longer runs only if it was named.
    MAX_PAUSE_MS = 200
    # The lever for a full GC, and the levers whose forecast depends on the garbage that this GC frees before they run.
    OF_GARBAGE = %i[gc purge trim].freeze
    WORDS = Words.beside(__FILE__)

    # A prediction, made just before a lever runs: the bytes that the lever returns (`bytes`: a Range, or nil if
    # unknown), those of them on pages that no other process shares (`private_bytes`, likewise), and why either is
    # unknown or not exact (`reason`).
    # @api private
    Forecast = Struct.new(:bytes, :private_bytes, :reason) do
      # Also predicts the copies that the process may need of `shared` bytes, on pages that the lever may write to.
      def unsharing(shared)
        own = (private_bytes.begin - shared)..private_bytes.end if private_bytes && shared
        Forecast.new(bytes, own, [*reason, WORDS[:unshares]].join("; "))
      end

      class << self
        # For :trim, the ledger must be deep. `collect` collects garbage first, which narrows the forecast of a
        # compaction. Without it, the forecast changes nothing in the process.
        def of(lever, ledger, collect:, heap: nil)
          case lever
          when :gc then new(nil, nil, (WORDS[:found_by_dry_run] unless collect))
          when :compact then compaction(heap || read_heap(collect), collect, ledger)
          when :tcache then new(0..0, 0..0, WORDS[:flushed])
          when :decay then decay(ledger)
          when :purge then purge(ledger)
          when :trim then trim(ledger)
          when :collect then collectable(ledger)
          end
        end

        # Of a full GC. `ledger`, read with `garbage`, gives the reason if `returned` is nil.
        def of_collection(returned, ledger)
          return new(nil, nil, ledger.reasons.fetch(:garbage) { WORDS[:found_by_dry_run] }) unless returned

          new(returned.range, returned.private_range, (WORDS[:kept] if returned.range.size > 1))
        end

        # Of a full GC, or of the lever that returns malloc's memory after it; nil for other levers.
        def of_garbage(lever, blocks)
          return unless blocks && OF_GARBAGE.include?(lever)

          returned = lever == :gc ? blocks.returned_by_gc : blocks.returned_after_gc
          return new(nil, nil, blocks.reasons.fetch(:all) { blocks.reasons[:in_all] }) unless returned

          names = blocks.unfollowed_names
          unfollowed = WORDS.fill(:unfollowed, names: names) if names
          new(returned.range, returned.private_range, (joined(WORDS[:kept], unfollowed) if returned.range.size > 1))
        end

        private

        def joined(*reasons) = reasons.compact.then { |known| known.join("; ") if known.any? }

        def read_heap(collect) = collect ? RubyHeap.read(collect: true) : RubyHeap.bounded

        def compaction(heap, collect, ledger)
          known = RubyHeap::CompactionForecast.new(heap)
          own = compaction_gain(known.range, heap, ledger)
          trims = known.range && ledger.allocator.name == :glibc && Process.respond_to?(:warmup)
          new(known.range, own, joined(known.reason || (WORDS[:uncollected] unless collect), (WORDS[:trims] if trims),
                                       (WORDS[:unshares] if own && own.begin < (known.range&.begin || 0))))
        end

        # Compaction also writes to pages that it does not free: if these are shared, the process gets its own copies.
        # That is a loss even if it is unknown how much compaction returns.
        def compaction_gain(range, heap, ledger)
          most = heap.compactable_bytes.to_i + heap.empty_bytes
          own = ledger.unshared(:ruby_heap, range || (0..most), least: nil)
          own if range || (own && own.begin <= -Quantity::MEBIBYTE)
        end

        def decay(ledger)
          unused(decaying: true) { |bytes| of_malloc(0..bytes, ledger, (WORDS[:due] if bytes.positive?)) }
        end

        # jemalloc's unused pages include pages never written to, which the row :not_resident (never positive)
        # subtracts. The resident bytes are an upper bound too.
        def purge(ledger)
          untouched = ledger.each_leaf.find { |row| row.id == :not_resident }&.bytes || 0
          unused { |bytes| of_malloc([bytes + untouched, 0].max..bytes, ledger) }
        end

        # Yields the sum of the arenas' unused pages, with `decaying` without those that never decay.
        def unused(decaying: false)
          arenas = Arenas.read
          return new(nil, nil, arenas.reasons.fetch(:arenas) { WORDS[:arenas_unknown] }) unless arenas.merged

          pages = arenas.to_a.product(%i[dirty muzzy])
          pages.reject! { |arena, kind| arena.public_send(:"#{kind}_decay_ms") == -1 } if decaying
          yield(pages.sum { |arena, kind| arena.public_send(:"#{kind}_bytes") || 0 })
        end

        # It is unknown where among the allocator's pages these bytes are. Some of the pages are shared or locked.
        def of_malloc(range, ledger, reason = nil)
          range = ledger.returnable(range)
          own = ledger.unshared(:malloc, range)
          new(range, own, joined(reason, ledger.kept_reason, (WORDS[:unknown_shares] if own && own.size > range.size)))
        end

        # The ledger's trimmable bytes already exclude pages that the kernel does not take back.
        def trim(ledger)
          bytes, own = ledger.row(:malloc)&.detail&.values_at(:trimmable_bytes, :trimmable_private_bytes)
          return new(bytes..bytes, (own..own if own), ledger.kept_reason) if bytes

          new(nil, nil, ledger.reasons.fetch(:deep) { WORDS[:unwalked] })
        end

        def collectable(ledger)
          bytes = Native.collectable_bytes
          return new(nil, nil, WORDS[:unreported]) unless bytes

          new(bytes..bytes, ledger.unshared(:unattributed, bytes..bytes))
        end
      end
    end

    # The predicted harm of a lever that holds the GVL: for how many milliseconds it stops Ruby, and how many bytes of
    # pages that other processes share it may write to, so that this process needs its own copies. Either is nil if it
    # is unknown.
    # @api private
    Harm = Struct.new(:pause_ms, :unshared_bytes) do
      include Quantity

      # By lever, from a ledger read with `shared: true`. `pause`: the milliseconds of a full GC, nil if unknown.
      def self.of(ledger, pause)
        shared = ledger.row(:ruby_heap)&.shared_bytes
        RubyHeap::FULL_GCS.transform_values { |count| new(pause && (pause * count), shared) }
      end

      # True if pages of Ruby's heap are shared: a forked worker's, or those of its parent. Nearly every page of the
      # heap holds an object that a GC frees or ages, or that a compaction moves.
      def unshares? = unshared_bytes.nil? || unshared_bytes >= Quantity::MEBIBYTE

      # @return [String, nil] why a purge that does not name the lever leaves it out; nil if it runs
      def left_out
        stops = pause_ms ? WORDS.fill(:stops, pause: pause(pause_ms)) : WORDS[:stops_unknown]
        own = unshared_bytes ? WORDS.fill(:makes_private, most: size(unshared_bytes)) : WORDS[:makes_private_unknown]
        effects = [(stops if pause_ms.nil? || pause_ms > MAX_PAUSE_MS), (own if unshares?)].compact
        WORDS.fill(:left_out, effects: effects.join(" and ")) if effects.any?
      end
    end
    private_constant :WORDS
  end
end
