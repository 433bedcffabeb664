# frozen_string_literal: true

module Memscope
  class Policy
    # One worker of the group: its memory, and what a purge of it is predicted to return.
    class Member < Record
      # @return [Integer, nil] Puma's number of the worker; nil in a server without numbers
      field :index, :count
      # @return [Integer]
      field :pid, :count, null: false
      # @return [Numeric] when the process started, in seconds of the clock of `Group#seconds`
      field :started_seconds, :number, null: false
      # @return [Boolean] whether it serves requests or jobs: it has booted, and is not being stopped
      field :booted?, :boolean, null: false
      # @return [Integer, nil] memory that only this process maps, which its exit returns: USS, not RSS
      field :private_bytes, :bytes
      # @return [Integer, nil] growth of its memory, as of Verdict#bytes_per_hour; nil unless the verdict is a leak
      field :leak_bytes_per_hour, :signed_bytes
      # @return [Integer, nil] what a purge would return; nil if that is unknown: then it is not purged
      field :purge_bytes, :bytes
      # @return [String, nil] why it must not be restarted, such as "the other workers are forked from it"; nil if it
      #   may
      field :exempt, :string

      # @return [String] "worker 2 (pid 4711)", "process 4711"
      def title = index ? "worker #{index} (pid #{pid})" : "process #{pid}"
    end

    # An action that was carried out, or would have been carried out, and its result.
    class Outcome < Record
      # @return [Symbol] one of ACTIONS, but not :none
      field :action, :symbol, null: false, one_of: ACTIONS - [:none]
      # @return [Member] the worker when it was decided: for a restart, the one that ended
      field :worker, Member, null: false
      # @return [Boolean] false if the action was only observed, or failed: then nothing is measured, but the action
      #   counts for the intervals, so that a policy that only observes logs the same decisions as a policy that acts
      field :executed?, :boolean, null: false
      # @return [Numeric] when it began, in seconds of the clock of `Group#seconds`
      field :seconds, :number, null: false
      # @return [Integer] what it was predicted to return
      field :expected_bytes, :bytes, null: false
      # @return [Numeric, nil] for a restart, when the worker's successor had booted; for a purge, when it ended; nil
      #   until then
      field :booted_seconds, :number
      # @return [Integer] how many successors died before they had booted
      field :failed_boots, :count, null: false
      # @return [Integer, nil] what it returned: the worker's `private_bytes`, less what it, or its successor, has
      #   `Policy#settle_seconds` after `booted_seconds`; nil until then
      field :returned_bytes, :signed_bytes

      # The least share of what was expected that an action must return.
      HELPFUL = 0.5
      private_constant :HELPFUL

      # @return [Boolean] whether it returned less than half of what was expected
      def useless? = !returned_bytes.nil? && returned_bytes < HELPFUL * expected_bytes

      # @api private
      # @return [Outcome] a copy with other values for some fields
      def with(**changes) = changed(**changes)
    end

    # All processes of a server that share one memory limit, as of one moment: what Policy#decide goes by.
    class Group < Record
      # @return [Numeric] CLOCK_BOOTTIME in seconds, to the millisecond: it goes on while the machine is suspended, so
      #   that there is then a gap between two readings
      field :seconds, :number, null: false
      # @return [String, nil] name of the host: seeds the jitter, so that hosts do not act at the same time
      field :host, :string
      # @return [Integer, nil] the effective limit of the cgroup; nil if there is none: then nothing is ever done
      field :limit_bytes, :bytes
      # @return [Integer, nil] the cgroup's working set: usage less inactive page cache
      field :working_set_bytes, :bytes
      # @return [Boolean] whether something starts a worker again that has ended; if not, none is ever restarted
      field :supervised?, :boolean, null: false
      # @return [Integer] number of workers that the server is configured to run
      field :workers, :count, null: false
      # @return [Array<Member>] all live workers, including workers that are booting or stopping
      field :members, [Member], null: false
      # @return [Array<Outcome>] oldest first: of the last `Policy#stop_seconds` at least, and the last two restarts
      field :outcomes, [Outcome], null: false
    end

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
