# frozen_string_literal: true

require_relative "../record"

module Memscope
  module Metrics
    # One number of a family.
    class Sample < Record
      # @return [Hash{Symbol => String}] unique among the samples of a family
      field :labels, :hash, null: false
      # @return [Integer, Float] in the family's unit
      field :value, :number, null: false
    end

    # A metric with its samples at one moment, for exporters.
    class Family < Record
      # @return [String] "memscope_ledger_bytes"
      field :name, :string, null: false
      # @return [String] what it is
      field :help, :string, null: false
      # @return [Symbol] :gauge or :counter
      field :type, :symbol, null: false, one_of: %i[gauge counter]
      # @return [String, nil] "bytes", "seconds", "bytes_per_second", or nil for plain numbers
      field :unit, :string
      # @return [Array<Sample>]
      field :samples, [Sample], null: false
    end
  end
end
