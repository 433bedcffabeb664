# frozen_string_literal: true

require_relative "check"

module Memscope
  # Matchers about memory, for RSpec. `require "memscope/rspec"` in spec_helper.rb includes them in all examples.
  #
  #   expect { Report.new(order).render }.not_to grow_memory
  #   expect { parse(line) }.to allocate_at_most(objects: 12, String => 3)
  module RSpec
    # @param options [Hash{Symbol => Object}] those of Check.run: `iterations`, `runs`, `warmup`, `max`, `ignore`, `in`,
    #   `deadline`
    # @return [Matcher] for blocks, which run hundreds of times, in a forked child
    def grow_memory(**options) = Matcher.new("grow memory", ":", :grows?, ->(block) { Check.run(**options, &block) })

    # @param objects [Integer, nil] objects of all classes
    # @param limits [Hash{Symbol, Module, String => Integer}] for :objects, a class or the name of a class, the maximum
    #   number of objects
    # @return [Matcher] for blocks, which run twice: the second run is judged
    # @raise [ArgumentError] for anything but Integers
    def allocate_at_most(objects = nil, **limits)
      limits = { objects: objects, **limits } unless objects.nil?
      ranges = limits.transform_values do |limit|
        valid = limit.is_a?(Integer) && !limit.negative?
        valid ? 0..limit : Field.refuse(:limit, limit, "an Integer, 0 or more", call: "allocate_at_most")
      end
      names = limits.map { |what, most| what == :objects ? Quantity.counted(most, "objects") : "#{most} #{what}" }
      check = ->(block) { Check.allocations(ranges, &block) }
      Matcher.new("allocate at most #{names.join(', ')}", ", but it allocates", :passed?, check)
    end

    # A matcher for blocks, whose messages show the check.
    #
    # * `description`: for people
    # * `colon`: precedes the check in messages
    # * `predicate`: the method by which the check decides whether the block matches
    # * `check`: makes a Check or Check::Allocations of a block
    # @api private
    Matcher = Struct.new(:description, :colon, :predicate, :check) do
      def supports_block_expectations? = true

      def supports_value_expectations? = false

      # RSpec 3 warns about `expect(value)`, and calls the matcher all the same.
      def matches?(block)
        Field.refuse(description, block, "a block: expect { ... }") unless block.is_a?(Proc)

        @found = check.call(block)
        @found.public_send(predicate)
      end

      def failure_message = "expected the block to #{description}#{colon}\n#{@found}"

      def failure_message_when_negated = "expected the block not to #{description}#{colon}\n#{@found}"
    end

    ::RSpec.configure { |config| config.include(self) } if defined?(::RSpec.configure)
  end
end
