# frozen_string_literal: true

require "json"
require "socket"

module Memscope
  class Copy
    # The tracer refuses a copy, or the copy has ended.
    class Refusal < Client::Failed
      # @return [Symbol] the name of a text in copy.words
      attr_reader :reason
      # @return [Array<String>] what fills it, in the order in which it names them
      attr_reader :arguments

      def initialize(text)
        reason, *@arguments = Field.text(text).split("\n")
        @reason = WORDS.key?(reason.to_s) ? reason.to_sym : :refused
        names = WORDS[@reason].scan(/(?<=%\{)\w+/).map(&:to_sym).uniq
        unknown = names.to_h { |name| [name, "?"] }
        super(WORDS.fill(@reason, { **unknown, why: reason, **names.zip(@arguments).to_h.compact }))
      end

      # @return [String] what forbids to trace the process, rather than the kernel's error
      def sentence(pid)
        obstacle = ExternalProcess.copying(pid) if @reason == :denied
        [nil, :possible].include?(obstacle) ? message : WORDS.fill(obstacle, pid: pid)
      end
    end

    # The socket to the tracer. A request is its length in bytes (u64), then a Ruby expression; of length 0, the end. A
    # message is its kind (u32), zero (u32), its length (u64), then its bytes. Numbers are in the machine's order.
    class Channel
      KINDS = { ready: 0, value: 1, refused: 2, raised: 3, ended: 4, file: 5 }.freeze
      HEADER = "LLQ"
      HEADER_BYTES = 16
      # Maximum bytes of a part of a file.
      PART = 1 << 20
      # Seconds that the tracer may take to end the copy, after the copy's time is over.
      GRACE = 5

      # Opens the channel to the tracer that the block starts: the block returns a descriptor, or why there is none.
      # Waits while the process is being copied, or rests from a copy, for ten times as long as it was stopped.
      #
      # @return [Array(Channel, Hash{String => String})] and the tracer's figures of the pause
      # @raise [Refusal] if there is no copy
      def self.open(pid, seconds, deadline = Clock.now + PATIENCE)
        socket = yield
        why = Reasons.sentence(socket) unless socket.is_a?(Integer)
        raise Client::Failed, WORDS.fill(:not_started, pid: pid, why: why) if why

        channel = new(socket, pid, seconds)
        [channel, channel.ready]
      rescue Refusal => e
        sleep(0.05) && retry if e.reason == :busy && Clock.now < deadline
        raise
      end

      # The channel closes the descriptor. The copy may live for the seconds.
      def initialize(descriptor, pid, seconds)
        @socket = UNIXSocket.for_fd(descriptor)
        @pid = pid
        @deadline = Clock.now + seconds + GRACE
      end

      # @return [Hash{String => String}] the tracer's figures of the pause
      # @raise [Refusal] if there is no copy
      def ready
        figures(receive(:ready))
      rescue Client::Failed
        @socket.close
        raise
      end

      # @yieldparam part [String] of the file that the expression writes
      # @return [Object] the value of the expression in the copy
      # @raise [Client::Failed] if there is none
      def value(expression, &)
        send_request(expression)
        Channel.decoded(JSON.parse(Field.utf8(receive(:value, &))))
      rescue JSON::ParserError
        raise failed(:no_json)
      end

      # @return [Hash{String => String}] the tracer's figures of the copy's life; none if it has ended before
      def close
        return {} if @socket.closed?

        send_request("")
        figures(receive(:ended))
      rescue Client::Failed
        {}
      ensure
        @socket.close
      end

      # JSON of the copy, in which the first character of a String tells what it is.
      #
      # @raise [ArgumentError] for any other JSON
      def self.decoded(value)
        case value
        when String then text(value)
        when Array then value.map { |item| decoded(item) }
        when Hash then value.to_h { |key, item| [text(key), decoded(item)] }
        else value
        end
      end

      def self.text(given)
        text = given[1..]
        case given[0]
        when "'" then text
        when ":" then text.to_sym
        when "=" then text.codepoints.pack("C*")
        when "#" then Integer(text, 10)
        else raise ArgumentError, WORDS[:untold_type]
        end
      end
      private_class_method :text

      private

      def send_request(expression)
        @socket.write([expression.bytesize].pack("Q"), expression)
      rescue SystemCallError, IOError
        raise failed(:tracer_ended)
      end

      # The bytes of the next message, which must be of this kind. Those of a file come before.
      def receive(wanted, &)
        loop do
          kind, _, length = read(HEADER_BYTES).unpack(HEADER)
          kind = KINDS.key(kind)
          next part(length, &) if kind == :file && block_given?

          if length > Client::MAX_ANSWER_BYTES
            @socket.close # the bytes are not read, so nothing can be read after them
            raise failed(:too_long)
          end

          bytes = read(length)
          return bytes if kind == wanted

          complain(kind, bytes)
        end
      end

      def complain(kind, bytes)
        raise Refusal, bytes if kind == :refused
        raise failed(:raised, why: Field.text(bytes[0, 1000])) if kind == :raised

        raise failed(:unexpected)
      end

      def part(length)
        while length.positive?
          yield read([length, PART].min)
          length -= PART
        end
      end

      def read(length)
        bytes = "".b
        while bytes.bytesize < length
          left = @deadline - Clock.now
          raise failed(:too_slow) unless left.positive? && @socket.wait_readable(left)

          part = @socket.read_nonblock(length - bytes.bytesize, exception: false)
          raise failed(:tracer_ended) if part.nil?

          bytes << part unless part == :wait_readable
        end
        bytes
      rescue SystemCallError, IOError
        raise failed(:tracer_ended)
      end

      def figures(text) = Field.text(text).lines(chomp: true).to_h { |line| line.partition("=").values_at(0, 2) }

      def failed(text, **figures) = Client::Failed.new(WORDS.fill(text, { pid: @pid, **figures }))
    end
  end
end
