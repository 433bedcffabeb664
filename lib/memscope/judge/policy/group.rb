# frozen_string_literal: true

module Memscope
  class Policy
    Record.declare(__FILE__)

    # One worker of the group: its memory, and what a purge of it is predicted to return.
    class Member < Record
      # @return [String] "worker 2 (pid 4711)", "process 4711"
      def title = index ? "worker #{index} (pid #{pid})" : "process #{pid}"
    end

    # An action that was carried out, or would have been carried out, and its result.
    class Outcome < Record
      # The least share of what was expected that an action must return.
      HELPFUL = 0.5
      private_constant :HELPFUL

      # @return [Boolean] whether it returned less than half of what was expected
      def useless? = !returned_bytes.nil? && returned_bytes < HELPFUL * expected_bytes

      # @api private
      # @return [Outcome] a copy with other values for some fields
      def with(**changes) = changed(**changes)
    end

    # What to do now, and why; or why there is nothing to do.
    class Decision < Record
      # @return [Boolean] whether nothing is to be done
      def none? = action == :none
    end
  end
end
