# frozen_string_literal: true

Memscope::Loading.unit :Verdict

module Memscope
  class Policy < Record
    # A worker by its number and pid.
    #
    # @api private
    module Titled
      # @return [String] "worker 2 (pid 4711)"
      def title = "worker #{[index, "(pid #{pid})"].compact.join(' ')}"
    end

    # One worker of the group: its memory, and what each action on it is predicted to return.
    #
    # A prediction is nil if it is unknown or if the action is not allowed. In the latter case, `refused` has a sentence
    # under the action's name. An unknown prediction is never acted on.
    class Member < Record
      include Titled

      # @return [Integer, nil] Puma's number of the worker; nil in a server without numbers
      field :index, :count
      # @return [Integer]
      field :pid, :count, null: false
      # @return [Numeric] when the process started, in seconds of the clock of `Group#seconds`
      field :started_seconds, :number, null: false
      # @return [Boolean] whether it serves requests or jobs: it has booted, and is not being stopped
      field :booted?, :boolean, null: false
      # @return [Integer, nil] requests or jobs that it works on now
      field :busy, :count
      # @return [Integer, nil] memory that only this process maps, which its exit returns: USS, not RSS
      field :private_bytes, :bytes
      # @return [Integer, nil]
      field :rss_bytes, :bytes
      # @return [Integer, nil] growth of its memory, as of Verdict#bytes_per_hour
      field :bytes_per_hour, :signed_bytes
      # @return [Symbol, nil] kind of its last Verdict; nil if there is none
      field :verdict, :symbol, one_of: Verdict::KINDS
      # @return [Integer, nil] seconds until its growth alone reaches the group's limit, as of Verdict#eta_seconds
      field :eta_seconds, :count
      # @return [Integer, nil] what `:purge` would return
      field :purge_bytes, :bytes
      # @return [Integer, nil] what `:gc` would return
      field :gc_bytes, :bytes
      # @return [Integer, nil] what `:compact`, which collects garbage first, would return
      field :compact_bytes, :bytes
      # @return [Integer, nil] what running one thread fewer would return
      field :thread_bytes, :bytes
      # @return [Integer, nil] the most threads that it may use now
      field :threads, :count
      # @return [Integer, nil] the least that `threads` may be lowered to; nil if it cannot be lowered while it runs
      field :least_threads, :count
      # @return [String, nil] why it must not be restarted, such as "worker 0 is forked from"; nil if it may
      field :exempt, :string
      # @return [Hash{Symbol => String}] why an action is not allowed, by the action's name
      field :refused, :sentences, null: false
    end

    # An action that was carried out, or would have been carried out, and its result.
    class Outcome < Record
      include Titled

      # @return [Symbol] one of ACTIONS, but not :none
      field :action, :symbol, null: false, one_of: ACTIONS - [:none]
      # @return [Integer, nil] the worker's number
      field :index, :count
      # @return [Integer] the worker's pid; for a restart, the pid before it
      field :pid, :count, null: false
      # @return [Boolean] false if the action was only observed, or failed: then nothing is measured, but the action
      #   counts for the intervals, so that a policy that only observes logs the same decisions as a policy that acts
      field :executed?, :boolean, null: false
      # @return [Numeric] when it began, in seconds of the clock of `Group#seconds`
      field :seconds, :number, null: false
      # @return [Integer, nil] the worker's `private_bytes` when it was decided
      field :private_bytes, :bytes
      # @return [Integer] what it was predicted to return
      field :expected_bytes, :bytes, null: false
      # @return [Numeric, nil] for a restart, when the worker's successor had booted; for any other action, when it
      #   ended; nil until then
      field :booted_seconds, :number
      # @return [Integer] how many successors died before they had booted
      field :failed_boots, :count, null: false
      # @return [Integer, nil] what it returned: the fall of the group's working set from before it began to
      #   `Policy#settle_seconds` after `booted_seconds`, plus the growth of the other workers' RSS meanwhile; nil until
      #   then, and for ever if another worker was replaced meanwhile
      field :returned_bytes, :signed_bytes

      # The least share of what was expected that an action must return.
      HELPFUL = 0.5
      private_constant :HELPFUL

      # @api private
      # @param decision [Decision] a decision that was not carried out
      # @param seconds [Numeric] when it was made, by the clock of `Group#seconds`
      # @return [Outcome]
      def self.observed(decision, seconds)
        capture({ action: decision.action, executed: false, seconds: seconds, failed_boots: 0,
                  expected_bytes: decision.expected_bytes, index: decision.worker.index, pid: decision.worker.pid,
                  private_bytes: decision.worker.private_bytes })
      end

      # @return [Boolean] whether it returned less than half of what was expected
      def useless? = !returned_bytes.nil? && returned_bytes < HELPFUL * expected_bytes
    end

    # All processes of a server that share one memory limit, as of one moment: what Policy#decide goes by.
    #
    # Its envelope is the master's: `pid`, `at`.
    class Group < Reading
      # @return [Numeric] CLOCK_MONOTONIC in seconds, to the millisecond
      field :seconds, :number, null: false
      # @return [String, nil] name of the host: seeds the jitter, so that hosts do not act at the same time
      field :host, :string
      # @return [Integer, nil] the effective limit of the cgroup; nil if there is none: then nothing is ever done
      field :limit_bytes, :bytes
      # @return [Integer, nil] the cgroup's working set: usage less inactive page cache
      field :working_set_bytes, :bytes
      # @return [Symbol, nil] what starts a worker again: :puma (its master), :systemd, :kubernetes, ...; nil if no
      #   supervisor is proved: then no worker is ever restarted
      field :supervisor, :symbol
      # @return [Integer] number of workers that the server is configured to run
      field :workers, :count, null: false
      # @return [Array<Member>] all live workers, including workers that are booting or stopping
      field :members, [Member], null: false
      # @return [Array<Outcome>] oldest first: of the last `Policy#stop_seconds`, and of the last two restarts
      field :outcomes, [Outcome], null: false

      # @api private
      # @return [Group] a copy with other values for some fields
      def with(**changes) = self.class.capture({ **values, **changes }, envelope)

      # @api private
      def known? = !working_set_bytes.nil?
    end
  end
end
