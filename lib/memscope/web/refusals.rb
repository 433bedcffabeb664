# frozen_string_literal: true

module Memscope
  module Web
    # How often refusals are logged: of each kind the first at once, then one a minute at most, which says how many it
    # stands for. What a stranger sends often would fill the log of the application.
    #
    # @api private
    class Refusals
      # Seconds.
      EVERY = 60
      # Kinds that are told apart. There are fewer; all that are more would be one.
      MOST = 32
      private_constant :EVERY, :MOST

      # @param clock [#call] returns seconds
      def initialize(clock: -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) })
        @clock = clock
        @mutex = Mutex.new
        @kinds = {}
      end

      # Counts one.
      #
      # @param kind [Object] nothing of the request
      # @return [String, nil] what to add to the line; nil where none is to be written
      def add(kind)
        now = @clock.call
        @mutex.synchronize do
          kind = :others if @kinds.size >= MOST && !@kinds.key?(kind)
          written, left_out = @kinds[kind]
          next count(kind, written, left_out) if written && now - written < EVERY

          @kinds[kind] = [now, 0]
          next "" if left_out.to_i.zero?

          " (and #{left_out} more for the same reason in the #{(now - written).round} s before)"
        end
      end

      private

      def count(kind, written, left_out)
        @kinds[kind] = [written, left_out + 1]
        nil
      end
    end
  end
end
