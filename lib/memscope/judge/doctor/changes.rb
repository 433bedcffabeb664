# frozen_string_literal: true

module Memscope
  module Doctor
    # The part of Figures that compares a diagnosis with an earlier one.
    #
    # @api private
    module Changes
      # @return [String, nil] why this diagnosis cannot be compared with the earlier one
      def incomparable
        return "no earlier diagnosis was given" unless earlier

        "the earlier diagnosis is not earlier" unless earlier.ledger.at < ledger.at
      end

      # @yieldparam figures [Figures]
      # @yieldreturn [Integer, nil]
      # @return [Integer, nil] how much the block's number has grown since the earlier diagnosis; 0 if it fell
      def growth_of = grown(yield(earlier), yield(self))

      # @return [Hash{Symbol => Object}] these figures now, and as :earlier_… in the earlier diagnosis
      def both(*names)
        names.flat_map { |name| [[name, public_send(name)], [:"earlier_#{name}", earlier.public_send(name)]] }.to_h
      end

      # @return [String, nil] which objects were not asked for their sizes in one of the two diagnoses
      def unsized_growth = [self, earlier].filter_map(&:unsized_reason).first

      # @return [String, nil] why the growth of objects and that of native memory cannot be told
      def undivided = incomparable || (unsized_growth && "growth of objects cannot be told from that of native memory")

      # @return [Integer, nil] growth of untracked_bytes, but no more than that of unheld_bytes: blocks that were in use
      #   but not resident before may have become resident since
      def untracked_growth_bytes = [growth_of(&:untracked_bytes), growth_of(&:unheld_bytes)].compact.min

      # @return [Boolean] whether both diagnoses know what is garbage
      def garbage_known? = [earlier, self].all?(&:garbage)

      # @return [Array<Integer, nil>] bytes of Ruby's objects in the earlier diagnosis and in this one; without their
      #   garbage, if both know it
      def object_bytes = without_garbage(&:ruby_bytes)

      # @return [Array<Integer, nil>] likewise, of live slots and of malloc memory in use
      def both_in_use = without_garbage(&:in_use_bytes)

      # @return [Integer, nil]
      def in_use_growth_bytes = grown(*both_in_use)

      # @return [Integer, nil] bytes by which Ruby's objects have grown; 0 if they shrank
      def object_growth_bytes = grown(*object_bytes)

      # @return [Integer, nil] the least that Ruby's objects can have grown: as if everything that may be garbage were
      #   garbage
      def kept_growth_bytes
        return object_growth_bytes if garbage_known?

        object_growth_bytes && garbage_max_bytes && (object_growth_bytes - garbage_max_bytes)
      end

      # @return [Float] time since the earlier diagnosis
      def seconds = (ledger.at - earlier.ledger.at).to_f

      # @return [Boolean] whether the history is long enough to tell how memory grows
      def judged? = !verdict.nil? && verdict.kind != :too_early

      # @return [Integer, nil]
      def uss_bytes = process_memory.uss_bytes

      # @return [Integer, nil] resident memory that malloc and Ruby's heap keep, in no used block or slot
      def free_bytes
        unused_bytes && (unused_bytes + %i[free_slots empty_pages].sum { |id| bytes(:ruby_heap, id) || 0 })
      end

      # @return [Hash{String => Integer}] how many threads and fibers have a stack more than in the earlier diagnosis
      def stacks_more
        { "fibers" => %i[stacks fibers stacks], "threads" => %i[stacks threads live] }.transform_values do |path|
          detail(*path).to_i - earlier.detail(*path).to_i
        end
      end

      # @return [Integer]
      def mappings_more = ledger.mappings.to_i - earlier.ledger.mappings.to_i

      # @return [Integer]
      def major_gcs_more = snapshot.gc[:major_gc_count].to_i - earlier.snapshot.gc[:major_gc_count].to_i

      # @return [Integer, nil] growth of private memory beyond that of RSS
      def unshared_growth_bytes
        own = change_of(&:uss_bytes)
        all = change_of(&:rss_bytes)
        [own - [all, 0].max, 0].max if own && all
      end

      # @return [Hash{String => Integer}] growth of the private memory of each row, by its label, the largest first
      def private_growth
        grown = ledger.rows.filter_map do |row|
          before = earlier.row(row.id)&.private_bytes
          [row.label, row.private_bytes - before] if before && row.private_bytes
        end
        grown.sort_by { |_label, bytes| -bytes }.to_h
      end

      # @return [Hash{Symbol => Integer}, nil] by how much RSS, USS and each row have grown since the earlier diagnosis:
      #   the rows sum to RSS; nil if it cannot be compared
      def changes
        return if incomparable || !rss_bytes || !earlier.rss_bytes

        { rss: change_of(&:rss_bytes), uss: change_of(&:uss_bytes), **changes_of_rows }.compact
      end

      private

      def without_garbage
        [earlier, self].map { |figures| yield(figures)&.-(garbage_known? ? figures.garbage.bytes : 0) }
      end

      def grown(before, now) = before && now && [now - before, 0].max

      def change_of(&)
        before, now = [earlier, self].map(&)
        now - before if before && now
      end

      # The largest first.
      def changes_of_rows
        ids = (ledger.rows + earlier.ledger.rows).map(&:id).uniq
        ids.map { |id| [id, change_of { |figures| figures.bytes(id) || 0 }] }.sort_by { |_id, bytes| -bytes }.to_h
      end
    end
  end
end
