# frozen_string_literal: true

require_relative "../reading"

module Memscope
  class Diagnosis < Reading
    # What a garbage collection would free, by a marking in a forked child.
    class Garbage < Record
      # @return [Integer]
      field :objects, :count, null: false
      # @return [Integer] what they hold, slots included, as far as it is known or reported
      field :bytes, :bytes, null: false
      # @return [Integer] the most that the process returns if it is collected, and malloc's memory then trimmed (glibc)
      #   or purged (jemalloc): what is free today is included
      field :returned_max_bytes, :bytes, null: false
      # @return [Integer] the least
      field :returned_bytes, :bytes, null: false
      # @return [Integer, nil] the part of `returned_bytes` on pages that no other process shares
      field :returned_private_bytes, :bytes
      # @return [Integer, nil] the part of `returned_max_bytes` on such pages
      field :returned_private_max_bytes, :bytes

      # @api private
      # @param blocks [RubyHeap::Blocks]
      # @return [Garbage, nil] nil if that is unknown
      def self.of(blocks)
        return unless blocks.garbage && blocks.returned

        all, own = blocks.returned
        capture({ objects: blocks.garbage.objects, bytes: blocks.garbage_bytes,
                  returned_bytes: all.begin, returned_max_bytes: all.end,
                  returned_private_bytes: own&.begin, returned_private_max_bytes: own&.end })
      end
    end
  end
end
