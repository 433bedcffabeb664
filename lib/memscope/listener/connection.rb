# frozen_string_literal: true

require_relative "../remote"

module Memscope
  class Listener
    # One client: a line comes in, a line goes out, each within a time. Nothing here waits.
    #
    # @api private
    class Connection
      # Seconds for all of the request, and for all of the answer to be fetched.
      PATIENCE = 2.0
      FETCHING = 10.0
      private_constant :PATIENCE, :FETCHING

      # @return [Float] the moment, as of CLOCK_MONOTONIC, at which it is given up
      attr_reader :deadline

      # @return [String, nil] the request, once it is there and until it is answered
      attr_reader :request

      # @param socket [UNIXSocket]
      def initialize(socket)
        @socket = socket
        @buffer = +"".b
        @deadline = Listener.now + PATIENCE
      end

      # @return [IO] for IO.select
      def to_io = @socket

      # @return [Boolean] whether the request is not all there yet
      def reading? = @answer.nil?

      # @return [Boolean] whether there is nothing more to do for it
      def over? = @over || false

      # @return [void]
      def close = @socket.close

      # Reads or writes what there is.
      #
      # @return [void]
      def go_on
        reading? ? read : write
      rescue IOError, SystemCallError
        @over = true # the client has gone
      end

      # @param text [String] one line
      # @return [void]
      def answer(text)
        @request = nil
        @answer = text.b
        @deadline = Listener.now + FETCHING
        go_on
      end

      private

      def read
        part = @socket.read_nonblock(Remote::LONGEST_REQUEST + 1, exception: false)
        return if part == :wait_readable
        return @over = true if part.nil?

        @buffer << part
        line, ending = @buffer.partition("\n")
        if line.bytesize > Remote::LONGEST_REQUEST then refuse
        elsif !ending.empty? then @request = line
        end
      end

      def refuse
        answer(Remote.failure("ArgumentError", "a request: given more than #{Remote::LONGEST_REQUEST} bytes, " \
                                               "allowed: one line of at most these"))
      end

      def write
        count = @socket.write_nonblock(@answer, exception: false)
        return if count == :wait_writable

        @answer = @answer.byteslice(count..)
        @over = @answer.empty?
      end
    end
    private_constant :Connection
  end
end
