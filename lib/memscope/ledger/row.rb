# frozen_string_literal: true

require_relative "../reading"
require_relative "../lookup"

module Memscope
  class Ledger < Reading
    # What an independent source says about a row.
    class Check < Record
      # @!attribute [r] source
      #   @return [String] who says it
      field :source, :string, null: false
      # @!attribute [r] expected_bytes
      #   @return [Integer] what that source says
      field :expected_bytes, :bytes, null: false
      # @!attribute [r] actual_bytes
      #   @return [Integer] what the ledger found, measured the same way
      field :actual_bytes, :bytes, null: false
      # @!method verified?
      #   @return [Boolean] whether both agree
      field :verified, :boolean, null: false

      # @return [Integer] found less expected
      def difference_bytes = actual_bytes - expected_bytes
    end

    # Resident bytes of one owner. The children's bytes sum to the row's.
    class Row < Record
      # @!attribute [r] id
      #   @return [Symbol]
      field :id, :symbol, null: false
      # @!attribute [r] label
      #   @return [String] for people
      field :label, :string, null: false
      # @!attribute [r] bytes
      #   @return [Integer] resident; negative only where a row says why
      field :bytes, :signed_bytes, null: false
      # @!attribute [r] shared_bytes
      #   @return [Integer, nil] of these, shared with other processes; nil unless asked for
      field :shared_bytes, :bytes, sparse: true
      # @!attribute [r] private_bytes
      #   @return [Integer, nil] of these, private; nil unless asked for
      field :private_bytes, :bytes, sparse: true
      # @!attribute [r] detail
      #   @return [Hash{Symbol => Object}] counts
      field :detail, :hash, null: false
      # @!attribute [r] check
      #   @return [Check, nil]
      field :check, Check
      # @!attribute [r] children
      #   @return [Array<Row>]
      field :children, [self], null: false

      include Lookup

      # @return [Boolean] whether it has no children
      def leaf? = children.empty?

      # @yield [Row] itself where it is a leaf, else each leaf below it
      # @return [Enumerator<Row>, self] an Enumerator without a block
      def each_leaf(&block)
        return enum_for(:each_leaf) unless block

        leaf? ? yield(self) : children.each { |child| child.each_leaf(&block) }
        self
      end

      private

      def parts = children
    end
  end
end
