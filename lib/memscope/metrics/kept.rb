# frozen_string_literal: true

module Memscope
  module Metrics
    # A value that is read anew only when it is too old, by one thread while others wait for it. A forked child starts
    # without: what it inherited is its parent's.
    #
    # @api private
    class Kept
      def initialize
        @mutex = Mutex.new
      end

      # @param seconds [Numeric] how old it may be
      # @yieldreturn [Object] a new one
      # @return [Object]
      def fetch(seconds)
        @mutex.synchronize do
          now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          unless @pid == Process.pid && now - @at < seconds
            @value = yield
            @at = now
            @pid = Process.pid
          end
          @value
        end
      end
    end
  end
end
