# frozen_string_literal: true

require_relative "growth_check"

module Memscope
  # Matchers about memory, for RSpec. `require "memscope/rspec"` in spec_helper.rb includes them in all examples.
  #
  #   expect { Report.new(order).render }.not_to grow_memory
  module RSpec
    # @param options [Hash{Symbol => Object}] those of GrowthCheck.run: `iterations`, `runs`, `warmup`, `max`, `ignore`,
    #   `in`, `deadline`
    # @return [GrowMemory] a matcher for blocks, which run some hundred times, in a forked child
    def grow_memory(**options) = GrowMemory.new(options)

    # Matches a block that leaves an object or a block of malloc behind each time it runs.
    class GrowMemory
      # @return [String]
      attr_reader :description

      # @param options [Hash{Symbol => Object}] of GrowthCheck.run
      def initialize(options)
        @options = options
        @description = "grow memory"
      end

      # @return [Boolean]
      def supports_block_expectations? = true

      # @return [Boolean]
      def supports_value_expectations? = false

      # @param block [Proc]
      # @return [Boolean]
      # @raise [ArgumentError, GrowthCheck::Unfinished, GrowthCheck::Unavailable, Exception] as GrowthCheck.run
      def matches?(block)
        @check = GrowthCheck.run(**@options, &block)
        @check.grows?
      end

      # @return [String]
      def failure_message = "expected the block to grow memory, but #{@check}"

      # @return [String] with what grows
      def failure_message_when_negated = "expected the block not to grow memory, but #{@check}"
    end

    ::RSpec.configure { |config| config.include(self) } if defined?(::RSpec.configure)
  end
end
