# frozen_string_literal: true

require_relative "record"

module Memscope
  # One thing that the doctor found: what it is, the numbers that show it, how much memory it is about, how much of that
  # can be given back, and how.
  class Finding < Record
    # From the worst on.
    SEVERITIES = %i[critical warning info].freeze

    # @!attribute [r] id
    #   @return [Symbol] of the rule
    field :id, :symbol, null: false
    # @!attribute [r] severity
    #   @return [Symbol] one of SEVERITIES; :info makes nothing unhealthy
    field :severity, :symbol, null: false, one_of: SEVERITIES
    # @!attribute [r] confidence
    #   @return [Symbol] :certain where the numbers prove it, :likely where another cause is thinkable
    field :confidence, :symbol, null: false, one_of: %i[certain likely]
    # @!attribute [r] title
    #   @return [String] one line, with the bytes
    field :title, :string, null: false
    # @!attribute [r] explanation
    #   @return [String] what the numbers say, for people
    field :explanation, :string, null: false
    # @!attribute [r] evidence
    #   @return [Hash{Symbol => Object}] the numbers; `floor_bytes` and `floor_ratio` are what they had to reach
    field :evidence, :hash, null: false
    # @!attribute [r] affected_bytes
    #   @return [Integer, nil] of memory that it is about; nil where it is about no amount
    field :affected_bytes, :bytes
    # @!attribute [r] recoverable_bytes
    #   @return [Integer, nil] what the remedy returns, at least; nil where nothing in this process returns it
    field :recoverable_bytes, :bytes
    # @!attribute [r] recoverable_max_bytes
    #   @return [Integer, nil] what it returns at most; equal where the amount is exact
    field :recoverable_max_bytes, :bytes
    # @!attribute [r] unrecoverable_reason
    #   @return [String, nil] why recoverable_bytes is nil
    field :unrecoverable_reason, :string
    # @!attribute [r] remedy
    #   @return [String, nil] code, a setting or a command to paste
    field :remedy, :string
    # @!attribute [r] remedy_cost
    #   @return [String, nil] what the remedy costs
    field :remedy_cost, :string

    # @return [Boolean] whether it makes a process unhealthy
    def unhealthy? = severity != :info
  end
end
