# frozen_string_literal: true

module Memscope
  class Workers < Reading
    # Carries the workers' reports to their master, over a pair of datagram sockets made before the fork, which no other
    # process can open. A report is one datagram. No worker waits: if the master falls behind, reports are dropped.
    # @api private
    class Channel
      # Maximum bytes of a report. 2 to 8 KiB is usual, 30 KiB with tags. By default the kernel queues 208 KiB from
      # one sender (net.core.wmem_default), and accepts no datagram larger than that.
      LIMIT = 65_536
      # The parts that are left out of a larger report, in this order.
      OPTIONAL_PARTS = %i[arenas tags].freeze

      def initialize
        @reader, @writer = UNIXSocket.pair(:DGRAM)
      end

      # Closes this process's copy of the end that only the master needs, so that no datagrams are queued once the
      # master has ended.
      def keep_writer = @reader.close

      def send(worker)
        @writer.sendmsg_nonblock(text(worker), exception: false) != :wait_writable
      rescue SystemCallError, IOError
        false
      end

      # A report as it was sent, until the next call overwrites it, or nil if none has come.
      def receive
        @buffer unless @reader.recv_nonblock(LIMIT, 0, @buffer ||= "".b, exception: false) == :wait_readable
      end

      private

      # As JSON. Parts that make a report too large, as arenas do on a machine with hundreds of processors, are left
      # out.
      def text(worker)
        text = worker.to_json
        OPTIONAL_PARTS.select { |part| worker.public_send(part) }.each do |part|
          break if text.bytesize <= LIMIT

          why = Reasons.sentence([:report_too_large, part.name, text.bytesize.to_s, LIMIT.to_s])
          worker = worker.with(part => nil, reasons: { **worker.reasons, part => why })
          text = worker.to_json
        end
        text
      end
    end

    # The last report of one worker, as its master keeps it: a text, which is parsed only when somebody needs a value.
    # The next report overwrites it in place. A master seldom collects garbage, so it would otherwise keep all reports.
    # @api private
    class Received
      # The beginning of a worker's report, and its maximum length in bytes.
      HEAD = /\A\{"index":(\d+),"pid":(\d+),"role":"worker",/n
      MAX_HEAD_BYTES = 64

      # `began` and `at` are when the first report came and when the last one did, in seconds of Clock.now. `fault` is
      # why the last report is not understood, once `worker` has tried.
      attr_reader :index, :pid, :began, :at, :fault

      # The pid of the worker that sent a report, or nil. Matches a copy: Ruby keeps the text of the last match, so that
      # `receive` could not overwrite it and would need new memory for the next report.
      def self.sender(text) = (text.byteslice(0, MAX_HEAD_BYTES)[HEAD, 2].to_i if text.end_with?("}"))&.nonzero?

      # @raise [ArgumentError] unless this first report is understood
      def initialize(text)
        @text = "".b
        take(text)
        @began = @at
        first = worker or raise ArgumentError, @fault
        @index = first.index
        @pid = first.pid
      end

      def take(text)
        @text[0..] = text
        @at = Clock.now
        @fault = nil
      end

      # nil if the last report is not understood.
      def worker
        Worker.from_h(JSON.parse(@text.dup.force_encoding(Encoding::UTF_8)))
      rescue StandardError => e # such as EncodingError
        @fault = Reasons.sentence([:report_not_understood, e.message])
        nil
      end

      # Appends the last report to a JSON text, with Puma's phase, which the worker does not know.
      def write(text, phase)
        text << @text
        text.insert(-2, ",\"phase\":#{phase}") if phase
      end
    end
  end
end
