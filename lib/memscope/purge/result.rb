# frozen_string_literal: true

require_relative "../ledger"
require_relative "lever"

module Memscope
  module Purge
    # What a purge returned, lever by lever, and what the process held before and after.
    #
    #   result = Memscope.purge
    #   result.returned_bytes           # => 554827776
    #   result[:purge].returned_bytes   # => 554696704
    #   result.rows                     # => { "malloc/dirty": 554696704, … }
    class Result < Reading
      include Lookup

      # The share of what was returned that may be back for it to have stayed down.
      REGROWN = 0.1

      # @return [String]
      def self.kind = "purge"

      # @!attribute [r] allocator
      #   @return [Symbol] what serves malloc
      field :allocator, :symbol, null: false
      # @!method dry_run?
      #   @return [Boolean] whether it was only predicted
      field :dry_run, :boolean, null: false
      # @!attribute [r] arena
      #   @return [Integer, nil] of this arena only
      field :arena, :count
      # @!attribute [r] settle_seconds
      #   @return [Integer, Float] from the last lever to the reading `settled`; 0 without one
      field :settle_seconds, :number, null: false
      # @!attribute [r] levers
      #   @return [Array<Lever>] in the order in which they were pulled
      field :levers, [Lever], null: false
      # @!attribute [r] returned_bytes
      #   @return [Integer, nil] by how much RSS fell from `before` to `after`; nil for a dry run
      field :returned_bytes, :signed_bytes
      # @!attribute [r] rows
      #   @return [Hash{Symbol => Integer}] the same by ledger row, its path as in Memscope.mappings; the rows sum to
      #     `returned_bytes`, and those that did not change are left out
      field :rows, :hash, null: false
      # @!attribute [r] before
      #   @return [Ledger]
      field :before, Ledger, null: false
      # @!attribute [r] after
      #   @return [Ledger, nil] nil for a dry run
      field :after, Ledger
      # @!attribute [r] settled
      #   @return [Ledger, nil] read `settle_seconds` after the last lever
      field :settled, Ledger

      # @return [Integer, nil] what was still away when it had settled; nil unless that was asked for
      def settled_bytes = settled&.rss_bytes && (before.rss_bytes - settled.rss_bytes)

      # @return [Boolean, nil] whether at least nine tenths of it were still away; nil unless that was asked for, and
      #   where nothing was returned
      def stayed_down?
        settled_bytes >= returned_bytes * (1 - REGROWN) if settled_bytes && returned_bytes.positive?
      end

      # @return [String] a table for people; plain ASCII where the locale is not UTF-8
      def to_s
        require_relative "../report"
        require_relative "../report/purge_table"
        Report::PurgeTable.new(self, unicode: Encoding.default_external == Encoding::UTF_8).to_s
      end

      private

      def parts = levers
    end
  end
end
