# frozen_string_literal: true

module Memscope
  # The processes that have a listening TCP socket.
  #
  # @api private
  module PortHolders
    # TCP_LISTEN, in the column st of /proc/net/tcp.
    LISTENING = "0A"
    private_constant :LISTENING

    class << self
      # @param port [Integer]
      # @return [Array<Integer>] pids of the processes that listen on the port in this network namespace and whose
      #   descriptors this user may see: root may see those of all processes, other users those of their own
      def pids(port)
        sockets = inodes(port).map { |inode| "socket:[#{inode}]" }
        return [] if sockets.empty?

        Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i).select { |pid| sockets.intersect?(links(pid)) }.sort
      rescue SystemCallError
        []
      end

      private

      # Lines of /proc/net/tcp: "sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout
      # inode"; the local address ends in ":" and the port, in hexadecimal digits.
      def inodes(port)
        ending = format(":%04X", port)
        %w[tcp tcp6].flat_map { |name| lines("/proc/net/#{name}") }.map(&:split).filter_map do |fields|
          fields[9] if fields[3] == LISTENING && fields[1].end_with?(ending)
        end
      end

      def lines(path)
        File.readlines(path).drop(1)
      rescue SystemCallError # without IPv6
        []
      end

      def links(pid)
        Dir.children("/proc/#{pid}/fd").filter_map { |descriptor| link("/proc/#{pid}/fd/#{descriptor}") }
      rescue SystemCallError # the process is another user's, or gone
        []
      end

      def link(path)
        File.readlink(path)
      rescue SystemCallError
        nil
      end
    end
  end
end
