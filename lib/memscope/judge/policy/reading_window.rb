# frozen_string_literal: true

module Memscope
  class Policy
    # The readings that count, and how far the group is above the limits. The readings that count are the latest, back
    # to the last gap, backward step of the clock or suspension of the machine.
    # @api private
    class ReadingWindow
      # This many readings in a row must be above the hard limit: one may be an outlier.
      HARD_READINGS = 2
      # The growth of the group is measured over this many readings.
      RISING_READINGS = 3

      def initialize(policy, readings)
        @policy = policy
        @readings = readings.slice_when do |earlier, later|
          !(later.seconds - earlier.seconds).between?(0.001, @policy.gap_seconds)
        end.to_a.last
      end

      def newest = @readings.last

      # @return [Boolean] whether the group's last HARD_READINGS readings are above the hard limit
      def hard?
        last = @readings.last(HARD_READINGS)
        last.size == HARD_READINGS && last.all? { |one| above?(one, @policy.hard) }
      end

      # @return [Boolean] whether it is above the hard limit, and its present growth reaches the limit within
      #   `gap_seconds`
      def imminent?
        first = @readings.last(RISING_READINGS).find(&:working_set_bytes)
        hard? && room_bytes * span([newest, first]) <
          @policy.gap_seconds * (newest.working_set_bytes - first.working_set_bytes)
      end

      # @return [Boolean] whether it is above the soft limit, and has been for long enough
      def soft? = lasting?(above_soft)

      # @return [Array<Group>] the latest consecutive readings above the soft limit, newest first
      def above_soft = @above_soft ||= @readings.reverse_each.take_while { |one| above?(one, @policy.soft) }

      # @return [Float] for how many seconds the working set has been above the soft limit
      def soft_seconds = span(above_soft)

      # @return [Boolean] whether leaks reach the limit soon
      def leak? = lasting?(@readings) && eta_seconds && eta_seconds < @policy.eta_seconds

      # @return [Float, nil] seconds until the leaks of all workers together reach the limit; nil without a leak
      def eta_seconds
        rate = newest.members.sum { |member| member.leak_bytes_per_hour.to_i.clamp(0..) }
        room_bytes * 3600.0 / rate if rate.positive?
      end

      # @return [Integer, nil] how far the working set is above the soft limit, or will be above it when the leaks have
      #   grown for another `Policy#eta_seconds`; nil if neither
      def over_bytes
        over = newest.working_set_bytes - (@policy.soft * newest.limit_bytes).floor
        over += (room_bytes * @policy.eta_seconds / [eta_seconds, 1].max).ceil if over <= 0 && leak?
        over if over.positive?
      end

      private

      def above?(group, share)
        group.limit_bytes && group.working_set_bytes && group.working_set_bytes > share * group.limit_bytes
      end

      def lasting?(readings)
        readings.size >= @policy.readings && span(readings) >= @policy.time(:sustained_seconds, newest.host)
      end

      def room_bytes = [newest.limit_bytes - newest.working_set_bytes, 0].max

      def span(readings) = readings.empty? ? 0.0 : (readings.first.seconds - readings.last.seconds).abs
    end
  end
end
