# frozen_string_literal: true

module Memscope
  class Policy
    # What to do now, and why; or why there is nothing to do.
    class Decision < Record
      # @return [Symbol] one of ACTIONS
      field :action, :symbol, null: false, one_of: ACTIONS
      # @return [Member, nil] the worker to act on, as the newest reading has it; nil for :none
      field :worker, Member
      # @return [Integer, nil] how much memory the action returns; nil for :none
      field :expected_bytes, :bytes
      # @return [Integer, nil] how far the working set is above the soft limit, or will be above it when leaks have
      #   grown for another `Policy#eta_seconds`; nil if neither, or while the policy waits for more readings
      field :over_bytes, :bytes
      # @return [String] a sentence with its numbers
      field :reason, :string, null: false

      # @return [Boolean] whether nothing is to be done
      def none? = action == :none
    end
  end
end
