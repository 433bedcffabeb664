# frozen_string_literal: true

module Memscope
  class Workers < Reading
    # How a number grew since the first reading, in a fixed amount of memory: of a long row of readings every second,
    # fourth, eighth … is kept.
    #
    # @api private
    class Trend
      # How many readings are kept at most.
      KEPT = 32
      # Fewer say nothing.
      LEAST = 5
      # Nor do readings over less than this many seconds.
      SPAN = 60
      private_constant :KEPT, :LEAST, :SPAN

      # @return [Integer] how many readings there were
      attr_reader :samples

      def initialize
        @kept = []
        @stride = 1
        @samples = 0
      end

      # @param seconds [Float] of the monotonic clock
      # @param bytes [Integer]
      # @return [void]
      def add(seconds, bytes)
        @last = [seconds, bytes]
        @kept << @last if (@samples % @stride).zero?
        @samples += 1
        return if @kept.size < KEPT

        @kept = @kept.each_slice(2).map(&:first)
        @stride *= 2
      end

      # @return [Integer, nil] bytes an hour: the median of the slopes between any two readings; nil while there are too
      #   few
      def per_hour
        readings = @kept.last.equal?(@last) ? @kept : [*@kept, @last]
        return if readings.size < LEAST || readings.last.first - readings.first.first < SPAN

        slopes = readings.combination(2).map { |(from, before), (to, after)| (after - before) / (to - from) }.sort
        (slopes[slopes.size / 2] * 3600).round
      end
    end
  end
end
