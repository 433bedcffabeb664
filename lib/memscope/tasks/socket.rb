# frozen_string_literal: true

require_relative "../client"

module Memscope
  module Tasks
    # Another process, asked on its socket.
    #
    # @api private
    class Socket
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

      # For a process without a listener, the ledger is the kernel's view, with a warning.
      #
      # @param call [Symbol] of Memscope
      # @return [Reading]
      # @raise [Failure]
      def read(call) = ask(call) { |error| return kernels_view(error) if call == :ledger && error.why != :gone }

      # @param levers [Array<String>]
      # @param dry_run [Boolean]
      # @return [Purge::Result]
      # @raise [Failure]
      def purge(levers, dry_run:) = ask(:purge, levers: levers, dry_run: dry_run)

      # @raise [Failure]
      def metrics = raise(Failure, "PID: given #{@pid}, allowed: none; a server's metrics are its page /metrics")

      # @return [String]
      def to_s = "process #{@pid}"

      private

      def ask(call, **options)
        Client.new(@pid).call(call, **options)
      rescue Client::Unreachable => e
        yield e if block_given?
        raise Failure, "PID: #{e.message}"
      rescue Client::Failed => e
        raise Failure, "PID: #{e.message}"
      end

      def kernels_view(error)
        found = ExternalProcess.read(@pid)
        warn "memscope:report: #{error.message}; this is the kernel's view only"
        found
      rescue Client::Unreachable => e # it has ended meanwhile
        raise Failure, "PID: #{e.message}"
      end
    end
  end
end
