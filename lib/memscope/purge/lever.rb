# frozen_string_literal: true

require_relative "../reading"

module Memscope
  module Purge
    # What one lever was expected to return, and what it did return.
    class Lever < Record
      # @!attribute [r] name
      #   @return [Symbol] one of Purge::LEVERS
      field :name, :symbol, null: false
      # @!attribute [r] predicted_bytes
      #   @return [Integer, nil] resident memory that it was to return at least, by what was known just before
      field :predicted_bytes, :bytes
      # @!attribute [r] predicted_max_bytes
      #   @return [Integer, nil] and at most; the same number where the forecast is exact
      field :predicted_max_bytes, :bytes
      # @!attribute [r] returned_bytes
      #   @return [Integer, nil] by how much RSS fell from the ledger before it to the one after, whoever did that;
      #     negative where it rose. nil for a dry run
      field :returned_bytes, :signed_bytes
      # @!attribute [r] rows
      #   @return [Hash{Symbol => Integer}] the same by ledger row ("malloc/dirty"), those that did not change left out
      field :rows, :hash, null: false
      # @!attribute [r] wall_ms
      #   @return [Float, nil] how long it took, without the ledgers around it; nil for a dry run
      field :wall_ms, :number
      # @!method gvl?
      #   @return [Boolean] whether it holds the GVL, so that no other Ruby thread runs meanwhile
      field :gvl, :boolean, null: false
      # @!attribute [r] reason
      #   @return [String, nil] why the forecast is missing or a range, or why nothing was done
      field :reason, :string

      # @return [Symbol] its name
      def id = name
    end
  end
end
