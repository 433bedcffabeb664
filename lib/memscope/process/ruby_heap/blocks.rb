# frozen_string_literal: true

module Memscope
  class RubyHeap < Reading
    Record.declare(__FILE__)

    # The malloc blocks that objects own, with the sizes that the allocator gave them; which objects are garbage, found
    # without a collection; and how much the process returns once that garbage is freed. Read in a forked child, by
    # Ledger.survey.
    #
    # Objects report how much they hold (ObjectSpace.memsize_of), but not by how much malloc rounds that up, and part of
    # that memory is not malloc's. Here, each block is looked up. Objects of C extensions, classes, code and open
    # files are *unfollowed*: only some of their blocks are known.
    # @api private
    class Blocks < Reading
      # Objects and their malloc blocks.
      class Owned < Record
        # Known blocks, and the memory that unfollowed objects report.
        def malloc_bytes = block_bytes + unfollowed_bytes
      end

      # Bounds on the resident memory that returns to the kernel.
      class Returned < Record
        def range = bytes..max_bytes

        def private_range = (private_bytes..private_max_bytes if private_bytes && private_max_bytes)
      end

      def returned_by_gc = both(heap_pages, at_once) { |pages, malloc| pages + malloc }

      # Returned by a trim or purge of malloc's memory after the GC: each bound of `in_all` includes that of `at_once`,
      # which may differ by more.
      def returned_after_gc = both(in_all, at_once) { |all, gone| [all - gone, 0].max }

      # Returned by the GC and that trim or purge together.
      def returned = both(heap_pages, in_all) { |pages, malloc| pages + malloc }

      # Without the memory that objects report, if they report too much.
      def held_by_objects_bytes = overstated? ? all.block_bytes : all&.malloc_bytes

      # True if objects report more than malloc has in use beside the known blocks.
      def overstated? = !all.nil? && !unowned_bytes.nil? && all.unfollowed_bytes > unowned_bytes

      # Slots included, as far as the memory is known or reported.
      def garbage_bytes = garbage && (garbage.slot_bytes + garbage.malloc_bytes)

      def garbage_max_bytes = garbage && (garbage_bytes + uncounted_bytes)

      # An upper bound on the memory that garbage of C extensions owns and does not report: Garbage::UNCOUNTED for each
      # object, but at most the memory that no object is known to own.
      def uncounted_bytes
        data = unfollowed_garbage.reject { |kind| OWN_KINDS.include?(kind.name) }
        [Garbage::UNCOUNTED * data.sum(&:garbage), unowned_bytes].compact.min
      end

      def unfollowed_garbage = unfollowed.to_a.select { |kind| kind.garbage.positive? }.sort_by { |kind| -kind.garbage }

      def unfollowed_names
        unfollowed_garbage.first(3).map { |kind| "#{kind.garbage} #{kind.name}" }.join(", ") if unfollowed_garbage.any?
      end

      # Unfollowed objects of Ruby itself report their memory.
      OWN_KINDS = %w[class code io].freeze

      private

      # The block's results for each bound of two Returned, the smaller first. uncounted_bytes are added to the upper
      # bounds.
      def both(one, other)
        return unless one && other

        least, most, own, own_most = Returned.fields.map do |bound|
          bounds = [one, other].map(&bound.name)
          yield(*bounds) unless bounds.include?(nil)
        end
        least, most = [least, most].minmax
        own, own_most = [own, own_most].minmax if own && own_most
        Returned.capture({ bytes: least, max_bytes: most + uncounted_bytes, private_bytes: own,
                           private_max_bytes: own_most && (own_most + uncounted_bytes) })
      end
    end
  end
end
