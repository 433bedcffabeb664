# frozen_string_literal: true

module Memscope
  module Tasks
    # The rake process itself.
    #
    # @api private
    class Here
      # @param call [Symbol] of Memscope
      # @return [Reading]
      def read(call) = Memscope.public_send(call)

      # @param levers [Array<String>]
      # @param dry_run [Boolean]
      # @return [Purge::Result]
      def purge(levers, dry_run:) = Memscope.purge(*levers.map(&:to_sym), dry_run: dry_run)

      # @return [String]
      def metrics
        require_relative "../prometheus"
        Memscope::Prometheus.text
      end

      # @return [String]
      def to_s = "this rake process itself (pid #{Process.pid})"
    end
  end
end
