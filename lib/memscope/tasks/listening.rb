# frozen_string_literal: true

module Memscope
  module Tasks
    # A process that listens on its socket.
    #
    # @api private
    class Listening
      PID = /\A[1-9]\d{0,9}\z/
      private_constant :PID

      # @param pid [String]
      # @raise [Failure] unless it is one
      def initialize(pid)
        unless pid.match?(PID)
          raise Failure, "PID: given #{pid.inspect}, allowed: the number of a process, as `memscope ps` lists them"
        end

        @pid = Integer(pid)
      end

      # Where one does not listen its ledger is what the kernel tells, and that is said.
      #
      # @param call [Symbol]
      # @return [Reading]
      # @raise [Failure]
      def read(call)
        ask(call) { |error| return outside(error) if call == :ledger && error.why != :gone }
      end

      # @param levers [Array<String>]
      # @param dry_run [Boolean]
      # @return [Purge::Result]
      # @raise [Failure]
      def purge(levers, dry_run:) = ask(:purge, levers: levers, dry_run: dry_run)

      # @raise [Failure]
      def metrics = raise(Failure, "PID: given #{@pid}, allowed: URL=, where an application has mounted Memscope::Web")

      # @return [String]
      def to_s = "process #{@pid}"

      private

      def ask(call, **options)
        require_relative "../client"
        Client.new(@pid).call(call, **options)
      rescue Client::Unreachable, Client::Failed => e
        yield e if block_given? && e.is_a?(Client::Unreachable)
        raise Failure, "PID: #{e.message}"
      end

      def outside(error)
        found = Outside.read(@pid)
        warn "memscope:report: #{error.message}; this is the view from outside"
        found
      rescue Client::Unreachable => e # it has ended meanwhile
        raise Failure, "PID: #{e.message}"
      end
    end
  end
end
