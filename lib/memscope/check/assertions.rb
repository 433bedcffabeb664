# frozen_string_literal: true

require_relative "check"

module Memscope
  # Assertions about memory, for Minitest and test-unit:
  #
  #   class ActiveSupport::TestCase
  #     include Memscope::Assertions
  #   end
  #
  #   assert_no_growth { Report.new(order).render }
  #   assert_allocates(objects: 0..12, String => 0..3) { parse(line) }
  #
  # RSpec has matchers instead: `require "memscope/rspec"`.
  module Assertions
    # Fails if the block leaves an object or a block of malloc behind each time it runs. The message lists the
    # growth, where it was allocated, and its retainers. See Check.
    #
    # @param message [String, nil] precedes the check in the failure's message
    # @param options [Hash{Symbol => Object}] those of Check.run: `iterations`, `runs`, `warmup`, `max`, `ignore`, `in`,
    #   `deadline`
    # @yield runs hundreds of times, in a forked child
    # @return [Check]
    # @raise [ArgumentError, Check::Failed, Unavailable, Exception] like Check.run
    # rubocop:disable-next Style/ArgumentsForwarding, Naming/BlockForwarding -- `...` would make options the message
    def assert_no_growth(message = nil, **options, &block)
      check = Check.run(**options, &block)
      assert !check.grows?, ([message, check].compact.join("\n") if check.grows?)
      check
    end

    # Fails unless the block allocates an allowed number of objects. See Check.allocations.
    #
    # @param message [String, nil] precedes the numbers in the failure's message
    # @param limits [Hash{Symbol, Module, String => Integer, Range<Integer>}] :objects, classes or names of classes, and
    #   how many. An Integer means exactly that many
    # @yield twice: the second run is judged
    # @return [Check::Allocations]
    # @raise [ArgumentError, Unavailable, Exception] like Check.allocations
    # rubocop:disable-next Style/ArgumentsForwarding, Naming/BlockForwarding -- `...` would make limits the message
    def assert_allocates(message = nil, **limits, &block)
      allocations = Check.allocations(limits, &block)
      assert allocations.passed?, ([message, allocations].compact.join("\n") unless allocations.passed?)
      allocations
    end
  end
end
