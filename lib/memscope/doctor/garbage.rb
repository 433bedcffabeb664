# frozen_string_literal: true

module Memscope
  class Diagnosis < Reading
    # What a garbage collection would free, as found by a mark phase in a forked child.
    class Garbage < Record
      # @return [Integer]
      field :objects, :count, null: false
      # @return [Integer] bytes that the garbage holds, slots included, as far as they are known or reported
      field :bytes, :bytes, null: false
      # @return [Integer] the most that the process returns if the garbage is collected, and malloc's memory is then
      #   trimmed (glibc) or purged (jemalloc); memory that is free already is included
      field :returned_max_bytes, :bytes, null: false
      # @return [Integer] the least
      field :returned_bytes, :bytes, null: false
      # @return [Integer, nil] the part of `returned_bytes` on pages that no other process shares
      field :returned_private_bytes, :bytes
      # @return [Integer, nil] the part of `returned_max_bytes` on such pages
      field :returned_private_max_bytes, :bytes

      # @return [Integer, nil] of `returned_bytes`, what the collection alone returns
      field :collected_bytes, :bytes
      # @return [Integer, nil] the same of `returned_max_bytes`
      field :collected_max_bytes, :bytes
      # @return [Integer, nil] the part of `collected_bytes` on pages that no other process shares
      field :collected_private_bytes, :bytes
      # @return [Integer, nil] the part of `collected_max_bytes` on such pages
      field :collected_private_max_bytes, :bytes

      # @api private
      # @param blocks [RubyHeap::Blocks]
      # @return [Garbage, nil] nil if that is unknown
      def self.of(blocks)
        return unless blocks.garbage && blocks.returned

        capture({ objects: blocks.garbage.objects, bytes: blocks.garbage_bytes,
                  **bounds(:returned, *blocks.returned), **bounds(:collected, *blocks.returned_by_gc) })
      end

      def self.bounds(name, all, own)
        { "#{name}_bytes": all.begin, "#{name}_max_bytes": all.end, "#{name}_private_bytes": own&.begin,
          "#{name}_private_max_bytes": own&.end }
      end
      private_class_method :bounds

      # @api private
      # @return [Array(Range, Range), Array(Range, nil)] what the collection alone returns, and the part of it on pages
      #   that no other process shares
      def collected
        [collected_bytes..collected_max_bytes,
         (collected_private_bytes..collected_private_max_bytes if collected_private_bytes)]
      end
    end
  end
end
