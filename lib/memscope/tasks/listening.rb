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

      # @param call [Symbol]
      # @return [Reading]
      # @raise [Failure]
      def read(call) = ask(call)

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
        raise Failure, "PID: #{e.message}"
      end
    end
  end
end
