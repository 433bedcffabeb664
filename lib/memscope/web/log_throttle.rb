# frozen_string_literal: true

module Memscope
  module Web
    # Limits how often refusals are logged, so that strangers cannot fill the application's log: the first of each kind
    # at once, then at most one line a minute, with the number of those left out.
    #
    # @api private
    class LogThrottle
      # Seconds.
      INTERVAL = 60
      # Kinds that are counted separately; all further kinds count as one.
      MOST = 32
      private_constant :INTERVAL, :MOST

      # @param clock [#call] returns seconds
      def initialize(clock: -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) })
        @clock = clock
        @mutex = Mutex.new
        @kinds = {}
      end

      # Counts one.
      #
      # @param kind [Object] without anything from the request
      # @return [String, nil] what to append to the line; nil where no line is due
      def add(kind)
        now = @clock.call
        @mutex.synchronize do
          kind = :others if @kinds.size >= MOST && !@kinds.key?(kind)
          logged, left_out = @kinds[kind]
          due = logged.nil? || now - logged >= INTERVAL
          @kinds[kind] = due ? [now, 0] : [logged, left_out + 1]
          next unless due
          next "" if left_out.to_i.zero?

          " (and #{left_out} more for the same reason in the #{(now - logged).round} s before)"
        end
      end
    end
  end
end
