# frozen_string_literal: true

module Memscope
  class Exercise < Reading
    # Makes requests: in this thread, or in as many threads as there are callers. The threads live until `close`, as a
    # server's do, so that what they keep is counted.
    #
    # @api private
    class Requests
      # @param callers [Array<#call>] each makes one request when called, in one thread
      def initialize(callers)
        @callers = callers
        @made = Array.new(callers.size, 0)
        @over = false
      end

      # @return [Integer] requests that were answered
      def made = @made.sum

      # @param times [Integer] requests
      # @raise [Exception] that one of them raised
      # @raise [Interrupt] after a request, if `interrupt` was called
      def call(times)
        @callers.one? ? make(0, times) : share(times)
        raise Interrupt if @over
      end

      # Interrupts between two requests, since the application could rescue an exception that is raised during a
      # request. The second call interrupts at once. Works in a trap handler.
      #
      # @return [void]
      def interrupt
        raise Interrupt if @over

        @over = true
      end

      # @return [void]
      def close = @threads&.each(&:kill)&.each(&:join)

      private

      def make(index, times)
        times.times do
          return if @over

          @callers[index].call
          @made[index] += 1
        end
      end

      # Divides the requests equally among the threads; some make one more.
      def share(times)
        @threads ||= start
        each, more = times.divmod(@callers.size)
        @todo.each_with_index { |queue, index| queue << (each + (index < more ? 1 : 0)) }
        errors = @todo.filter_map { @done.pop }
        raise errors.first if errors.any?
      end

      def start
        @todo = @callers.map { Queue.new }
        @done = Queue.new
        @todo.map.with_index { |queue, index| Thread.new { serve(queue, index) } }
      end

      def serve(queue, index)
        while (times = queue.pop)
          report { make(index, times) }
        end
      end

      # Tells the waiting thread what the block raised, or nil; without an answer, that thread would wait for ever.
      # After an error, the other threads make no more requests, either.
      def report
        error = Failed.new("a request ended its thread")
        yield
        error = nil
      rescue Exception => e # rubocop:disable Lint/RescueException -- it is raised again there
        error = e
      ensure
        @over = true if error
        @done << error
      end
    end
    private_constant :Requests
  end
end
