# frozen_string_literal: true

module Memscope
  module Doctor
    # The part of Figures that compares a diagnosis with an earlier one.
    #
    # @api private
    module Changes
      # @return [String, nil] which objects were not asked for their sizes in one of the two diagnoses
      def unsized_growth = [self, earlier].filter_map(&:unsized_reason).first

      # @param figure [Symbol, Proc]
      # @return [Integer, nil] how much the figure has grown since the earlier diagnosis; 0 if it fell
      def growth_of(figure) = change_of(figure)&.clamp(0..)

      # @return [Integer, nil] growth of untracked_bytes, but no more than that of unheld_bytes: blocks that were in use
      #   but not resident before may have become resident since
      def untracked_growth_bytes = [growth_of(:untracked_bytes), growth_of(:unheld_bytes)].compact.min

      # @return [Boolean] whether both diagnoses know what is garbage
      def garbage_known? = [earlier, self].all?(&:garbage)

      # @return [Integer, nil] growth of Ruby's objects; without their garbage, if both diagnoses know it
      def object_growth_bytes = growth_of(reachable(:ruby_bytes))

      # @return [Integer, nil] growth of live slots and of malloc memory in use, likewise
      def in_use_growth_bytes = growth_of(reachable(:in_use_bytes))

      # @param bytes [Symbol] a figure
      # @return [Proc] the figure without garbage, if both diagnoses know it
      def reachable(bytes)
        known = garbage_known?
        -> { public_send(bytes)&.-(known ? garbage.bytes : 0) }
      end

      # @return [Integer, nil] bytes of live slots and of malloc memory in use
      def in_use_bytes
        parts = [row_bytes(:ruby_heap, :live_slots), detail(:malloc, :in_use_bytes)]
        parts.sum unless parts.include?(nil)
      end

      # @return [Integer, nil] resident memory that malloc and Ruby's heap keep, in no used block or slot
      def free_bytes
        unused_bytes&.+(%i[free_slots empty_pages].sum { |id| row_bytes(:ruby_heap, id).to_i })
      end

      # @return [Float] time since the earlier diagnosis
      def seconds = (ledger.at - earlier.ledger.at).to_f

      # @return [Hash{String => Integer}] how many threads and fibers have a stack more than in the earlier diagnosis
      def stacks_more
        paths = { "fibers" => %i[stacks fibers stacks], "threads" => %i[stacks threads live] }
        paths.transform_values { |path| detail(*path).to_i - earlier.detail(*path).to_i }
      end

      # @return [Integer, nil] growth of private memory beyond that of RSS
      def unshared_growth_bytes
        own = change_of(:uss_bytes)
        own && growth_of(:rss_bytes)&.then { |all| [own - all, 0].max }
      end

      # @return [Hash{Symbol => Integer}, nil] by how much RSS, USS and each row have grown since the earlier diagnosis:
      #   the rows sum to RSS; nil if it cannot be compared
      def changes
        return if incomparable || !rss_bytes || !earlier.rss_bytes

        { rss: change_of(:rss_bytes), uss: change_of(:uss_bytes), **changes_of_rows }.compact
      end

      private

      # The largest first.
      def changes_of_rows
        ids = (ledger.rows + earlier.ledger.rows).map(&:id).uniq
        ids.map { |id| [id, change_of(-> { row_bytes(id) || 0 })] }.sort_by { |_id, bytes| -bytes }.to_h
      end

      def change_of(figure)
        before, now = [earlier, self].map { |figures| figures.figure(figure) }
        now - before if before && now
      end
    end
  end
end
