# frozen_string_literal: true

module Memscope
  class Policy
    Record.declare(__FILE__)

    # One worker of the group: its memory, and the bytes that its purge is predicted to return.
    class Member < Record
      # @return [String] "worker 2 (pid 4711)", "process 4711"
      def title = index ? "worker #{index} (pid #{pid})" : "process #{pid}"
    end

    # An action that was carried out, or would have been carried out, and its result.
    class Outcome < Record
      # The minimum share of the expected bytes that an action must return.
      HELPFUL = 0.5
      private_constant :HELPFUL

      # @return [Boolean] whether it returned less than half of the expected bytes
      def useless? = !returned_bytes.nil? && returned_bytes < HELPFUL * expected_bytes

      # @api private
      def with(**changes) = changed(**changes)
    end

    # The next action and its reason, or why there is none.
    class Decision < Record
      # @return [Boolean] whether nothing is to be done
      def none? = action == :none
    end
  end
end
