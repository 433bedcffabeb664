# frozen_string_literal: true

require_relative "check"
require_relative "../value/quantity"

module Memscope
  # Matchers about memory, for RSpec. `require "memscope/rspec"` in spec_helper.rb includes them in all examples.
  #
  #   expect { Report.new(order).render }.not_to grow_memory
  #   expect { parse(line) }.to allocate_at_most(objects: 12, String => 3)
  module RSpec
    # @param options [Hash{Symbol => Object}] those of Check.run: `iterations`, `runs`, `warmup`, `max`, `ignore`, `in`,
    #   `deadline`
    # @return [GrowMemory] a matcher for blocks, which run hundreds of times, in a forked child
    def grow_memory(**options) = GrowMemory.new(options)

    # @param objects [Integer, nil] objects of all classes
    # @param limits [Hash{Symbol, Module, String => Integer}] for :objects, a class or the name of a class, the most
    #   objects allowed
    # @return [AllocateAtMost] a matcher for blocks, which run twice; the second time counts
    def allocate_at_most(objects = nil, **limits)
      AllocateAtMost.new(objects.nil? ? limits : { objects: objects, **limits })
    end

    # What both matchers have in common: they take blocks.
    module OfBlocks
      # @return [Boolean]
      def supports_block_expectations? = true

      # @return [Boolean]
      def supports_value_expectations? = false

      private

      # RSpec 3 warns about `expect(value)`, and asks the matcher all the same.
      def checked(block) = block.is_a?(Proc) ? block : Field.refuse(description, block, "a block: expect { ... }")
    end

    # Matches a block that leaves an object or a block of malloc behind each time it runs.
    class GrowMemory
      include OfBlocks

      # @return [String]
      attr_reader :description

      # @param options [Hash{Symbol => Object}] of Check.run
      def initialize(options)
        @options = options
        @description = "grow memory"
      end

      # @param block [Proc]
      # @return [Boolean]
      # @raise [ArgumentError, Check::Failed, Unavailable, Exception] like Check.run
      def matches?(block)
        @check = Check.run(**@options, &checked(block))
        @check.grows?
      end

      # @return [String]
      def failure_message = "expected the block to grow memory:\n#{@check}"

      # @return [String] with what grows
      def failure_message_when_negated = "expected the block not to grow memory:\n#{@check}"
    end

    # Matches a block that allocates no more objects than it may.
    class AllocateAtMost
      include OfBlocks

      # @param limits [Hash{Symbol, Module, String => Integer}]
      # @raise [ArgumentError] for anything but Integers
      def initialize(limits)
        @limits = limits.to_h { |what, limit| [what, up_to(limit)] }
      end

      # @return [String]
      def description
        "allocate at most #{@limits.map { |what, limit| described(what, limit) }.join(', ')}"
      end

      # @param block [Proc]
      # @return [Boolean]
      # @raise [ArgumentError, Unavailable, Exception] like Check.allocations
      def matches?(block)
        @check = Check.allocations(@limits, &checked(block))
        @check.passed?
      end

      # @return [String] with what is allocated
      def failure_message = "expected the block to #{description}, but it allocates\n#{@check}"

      # @return [String]
      def failure_message_when_negated = "expected the block not to #{description}, but it allocates\n#{@check}"

      private

      def described(what, limit)
        what == :objects ? Quantity.counted(limit.end, "objects") : "#{limit.end} #{what}"
      end

      def up_to(limit)
        return 0..limit if limit.is_a?(Integer) && !limit.negative?

        Field.refuse(:limit, limit, "an Integer, 0 or more", call: "allocate_at_most")
      end
    end

    ::RSpec.configure { |config| config.include(self) } if defined?(::RSpec.configure)
  end
end
