# frozen_string_literal: true

module Memscope
  class BlackBox
    # Watches the memory that the container has left. Near the end, samples are taken each second, and the evidence of a
    # census once.
    # @api private
    class Approach
      # The end is near with less than this share of the limit left, less than these seconds at the present rate, or if
      # the kernel stalls all tasks for this share of the time, in percent.
      SHARE = 0.1
      SECONDS = 120
      PRESSURE = 20
      # The seconds over which the rate is measured, and the share of the limit below which nothing else is read.
      WINDOW = 10
      CALM = 0.5
      # Seconds for which samples are taken each second.
      LASTING = 300
      # Approaches in a day for which evidence is taken.
      MOST = 3
      DAY = 86_400
      # The maximum pause for it, and the time of a fork per byte of RSS that pausing assumes.
      PAUSE_MS = 25
      FORK_MS_PER_GIB = 45.0
      FILES = %w[memory.current memory.usage_in_bytes].freeze

      # @return [Hash{Symbol => Object}, nil] as Identity.limit, as of the last reading
      attr_reader :limit

      def initialize
        @usages = []
        @lefts = []
        @began = []
      end

      def limited? = !limit&.fetch(:limit_bytes).nil?

      # @return [Boolean] whether the end has been near since a moment ago: a container may live close to its limit
      def near? = @near == true

      # Until memory has recovered.
      def close? = !@since.nil?

      # In the last day.
      def began? = @began.any?

      # @return [Symbol, nil] :headroom, :time or :pressure if an approach begins now
      def look(now)
        read(now) if @limit.nil? || now >= @due || hasty?(now)
        why = reason
        begins = why unless close?
        follow(now, why)
        begins
      end

      # A census in a child, if the fork is short and there is room for the child, which the census checks.
      #
      # @return [Symbol, nil] :census, :lines (those of the profiles that run), or nil if it was taken often today
      def take_evidence(now)
        @began = [*@began.select { |at| at > now - DAY }, now]
        return if @began.size > MOST
        return :lines if Memscope.rss.to_i * FORK_MS_PER_GIB > PAUSE_MS << 30

        LastReadings.census.known? ? :census : :lines
      end

      private

      # Near for a while, and again whenever half of the rest is used up.
      def follow(now, why)
        left = @limit[:headroom_bytes].to_i
        if why.nil?
          @since = nil
        elsif !close? || left < @least / 2
          @since = now
          @least = left
        end
        @near = close? && now - @since < LASTING
      end

      def read(now)
        group = Cgroup.read
        @limit = Identity.limit(group)
        @lefts = recent(@lefts, now, @limit[:headroom_bytes].to_i)
        @file ||= FILES.map { |name| File.join(group.directory.to_s, name) }.find { |path| File.readable?(path) }
        @due = now + WINDOW
      end

      def recent(values, now, value) = [*values.drop_while { |at, _value| at < now - WINDOW }, [now, value]]

      # Whether the usage, page cache included, calls for a reading of what cannot be given back.
      def hasty?(now)
        return false unless limited? && @file

        used = File.read(@file).to_i
        @usages = recent(@usages, now, used)
        limit = @limit[:limit_bytes]
        used > CALM * limit && (near? || (!close? && used > (1 - SHARE) * limit) || soon?(limit - used, rate(@usages)))
      end

      def soon?(left, rate) = rate.positive? && left / rate < SECONDS

      # Bytes per second.
      def rate(values)
        (began, first), (at, last) = values.values_at(0, -1)
        at && at > began ? (last - first) / (at - began) : 0.0
      end

      def reason
        return unless limited?

        left = @limit[:headroom_bytes]
        return :headroom if left && left < SHARE * @limit[:limit_bytes]
        return :time if left && left < CALM * @limit[:limit_bytes] && soon?(left, -rate(@lefts))

        :pressure if @limit[:pressure_full_avg10].to_f >= PRESSURE
      end
    end
  end
end
