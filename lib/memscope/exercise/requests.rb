# frozen_string_literal: true

module Memscope
  class Exercise < Reading
    # Makes requests: in this thread, or in as many threads as there are callers. The threads live until `close`, as a
    # server's do, so that what they keep is counted.
    #
    # @api private
    class Requests
      # @return [Integer] requests that were answered
      attr_reader :made

      # @param callers [Array<#call>] each makes one request when called, in one thread
      def initialize(callers)
        @callers = callers
        @made = 0
      end

      # @param times [Integer] requests
      # @raise [Exception] that one of them raised
      def call(times) = @callers.one? ? times.times { made!(@callers.first.call) } : share(times)

      # @return [void]
      def close = @threads&.each(&:kill)&.each(&:join)

      private

      def made!(_answer) = @made += 1

      def share(times)
        @threads ||= start
        times.times { @todo << true }
        times.times { (error = @done.pop) ? raise(error) : made!(nil) }
      end

      def start
        @todo = Queue.new
        @done = Queue.new
        @callers.map { |caller| Thread.new { serve(caller) }.tap { |thread| thread.report_on_exception = false } }
      end

      def serve(caller)
        while @todo.pop
          caller.call
          @done << nil
        end
      rescue StandardError => e
        @done << e
      end
    end
    private_constant :Requests
  end
end
