# frozen_string_literal: true

require "json"
require "socket"

module Memscope
  class Workers < Reading
    # Reports of workers to their master: a pair of datagram sockets made before the fork, which no other process can
    # open. A report is one datagram. No worker waits: where the master is behind, a report is dropped.
    #
    # @api private
    class Channel
      # The largest report, in bytes; 2 to 8 KiB are usual. By default the kernel queues 208 KiB of one sender
      # (net.core.wmem_default), and accepts no larger datagram.
      LIMIT = 65_536
      private_constant :LIMIT

      def initialize
        @reader, @writer = UNIXSocket.pair(:DGRAM)
      end

      # Closes the end that only the master needs: once the master has ended, datagrams are not queued.
      #
      # @return [void]
      def keep_writer = @reader.close

      # @param worker [Worker]
      # @return [Boolean] whether it was sent
      def send(worker)
        @writer.sendmsg_nonblock(text(worker), exception: false) != :wait_writable
      rescue SystemCallError, IOError
        false
      end

      # @param seconds [Float] the longest wait
      # @return [Worker, nil] nil where none came, or none that is valid
      def receive(seconds)
        return unless @reader.wait_readable(seconds)

        text = @reader.recv_nonblock(LIMIT, exception: false)
        Worker.from_h(JSON.parse(text)) unless text == :wait_readable
      rescue JSON::ParserError, ArgumentError
        nil
      end

      private

      # Without arenas where they are too many, as on a machine with hundreds of processors.
      def text(worker)
        text = worker.to_json
        return text if text.bytesize <= LIMIT

        why = "with them the report has #{text.bytesize} bytes, and #{LIMIT} at most"
        worker.with(arenas: nil, reasons: { **worker.reasons, arenas: why }).to_json
      end
    end
  end
end
