# frozen_string_literal: true

require "json"
require "socket"

module Memscope
  class Workers < Reading
    # How workers reach their master: a pair of datagram sockets made before the fork, which no other process can open.
    # A report is one datagram. Nobody waits: where the master is behind, a report is dropped.
    #
    # @api private
    class Channel
      # The largest report, in bytes; some 2 to 8 KiB are usual. By default the kernel keeps 208 KiB of one sender
      # (net.core.wmem_default), and takes no larger datagram.
      LIMIT = 65_536
      private_constant :LIMIT

      def initialize
        @reader, @writer = UNIXSocket.pair(:DGRAM)
      end

      # Leaves only the end that workers need: datagrams go nowhere, and are not kept, once the master is gone.
      #
      # @return [void]
      def keep_writer = @reader.close

      # @param worker [Worker]
      # @return [Boolean] whether it went out
      def send(worker)
        @writer.sendmsg_nonblock(text(worker), exception: false) != :wait_writable
      rescue SystemCallError, IOError
        false
      end

      # @param seconds [Float] to wait for one at most
      # @return [Worker, nil] nil where there was none, or nothing that could be understood
      def receive(seconds)
        return unless @reader.wait_readable(seconds)

        text = @reader.recv_nonblock(LIMIT, exception: false)
        Worker.from_h(JSON.parse(text)) unless text == :wait_readable
      rescue JSON::ParserError, ArgumentError
        nil
      end

      private

      # Without what a machine with hundreds of processors has hundreds of, where that is too much.
      def text(worker)
        text = worker.to_json
        return text if text.bytesize <= LIMIT

        why = "with them a report has #{text.bytesize} bytes, and #{LIMIT} at most"
        worker.with(arenas: nil, reasons: { **worker.reasons, arenas: why }).to_json
      end
    end
  end
end
