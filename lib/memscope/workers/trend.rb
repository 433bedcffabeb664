# frozen_string_literal: true

module Memscope
  class Workers < Reading
    # Growth of a number since the first reading, in fixed memory: of many readings it keeps every second, fourth,
    # eighth …
    #
    # @api private
    class Trend
      # Most readings that are kept.
      KEPT = 32
      # Fewest readings for a trend.
      LEAST = 5
      # Fewest seconds between the first and the last.
      SPAN = 60
      private_constant :KEPT, :LEAST, :SPAN

      # @return [Integer] number of readings
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

      # @return [Integer, nil] bytes an hour: the median slope between any two readings; nil while they are too few
      def per_hour
        readings = @kept.last.equal?(@last) ? @kept : [*@kept, @last]
        return if readings.size < LEAST || readings.last.first - readings.first.first < SPAN

        slopes = readings.combination(2).map { |(from, before), (to, after)| (after - before) / (to - from) }.sort
        (slopes[slopes.size / 2] * 3600).round
      end
    end
  end
end
