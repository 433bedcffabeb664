# frozen_string_literal: true

require_relative "growth_check"

module Memscope
  # Assertions about memory, for Minitest and test-unit:
  #
  #   class ActiveSupport::TestCase
  #     include Memscope::Assertions
  #   end
  #
  #   assert_no_growth { Report.new(order).render }
  #
  # RSpec has matchers instead: `require "memscope/rspec"`.
  module Assertions
    # Fails if the block leaves an object or a block of malloc behind each time it runs. The message says what grows,
    # where it was allocated, and what holds it. See GrowthCheck.
    #
    # @param message [String, nil] precedes what grows
    # @param options [Hash{Symbol => Object}] those of GrowthCheck.run: `iterations`, `runs`, `warmup`, `max`, `ignore`,
    #   `in`, `deadline`
    # @yield runs some hundred times, in a forked child
    # @return [GrowthCheck]
    # @raise [ArgumentError, GrowthCheck::Unfinished, GrowthCheck::Unavailable, Exception] as GrowthCheck.run
    # rubocop:disable-next Style/ArgumentsForwarding, Naming/BlockForwarding -- `...` would make options the message
    def assert_no_growth(message = nil, **options, &block)
      check = GrowthCheck.run(**options, &block)
      assert !check.grows?, ([message, check].compact.join("\n") if check.grows?)
      check
    end
  end
end
