# frozen_string_literal: true

module Memscope
  class Verdict < Reading
    # The least sample in each epoch of a history, for each series that a verdict needs. Pure.
    #
    # All epochs have the same length, whatever ring they are read from: beyond the last twelve hours, two epochs of
    # 300 s share one bucket. Between two samples, a series that is sampled more rarely moves with the series that it is
    # a part of. Epochs without a sample of RSS, in which the process or the machine was suspended, are left out; so are
    # the first epochs, until all series are known.
    #
    # @api private
    class Floors
      # The possible lengths of an epoch, in seconds. The first that has at least one major GC per epoch on average is
      # used; a longer length is used only if ENOUGH epochs remain.
      EPOCHS = [300, 600, 1200, 1800].freeze
      ENOUGH = 24
      # A series is left out if it has no sample in the first epochs, as many as this.
      LATE = 3
      # Each series with the series that contains it. The containing series is listed first.
      SERIES = { rss: :rss, uss: :rss, live_bytes: :rss, **History::ROWS.to_h { |row| [row, :rss] },
                 malloc_in_use: :malloc, held: :malloc_in_use }.freeze
      private_constant :EPOCHS, :ENOUGH, :LATE, :SERIES

      # @return [Array<Integer>] seconds since 1970 at which the epochs begin
      attr_reader :seconds

      # @param history [History]
      def initialize(history)
        @history = history
        @seconds = []
        @series = {}
        @latest = {}
        @left_out = {}
        lay_out if history.series.include?(:rss)
      end

      # @param name [Symbol] a series
      # @return [Array<Integer>, nil] nil if it is unknown, or too old
      def [](name) = @series[name]

      # @param name [Symbol] a series
      # @return [Integer, nil] the last epoch with a sample
      def latest(name) = @latest[name]

      # @return [Array<Integer>] bytes
      def rss = @series.fetch(:rss, [])

      # @return [Integer] seconds
      def epoch_seconds = @epochs ? @epochs.seconds : EPOCHS.first

      # @return [Integer] from the first epoch to the last
      def span_seconds = seconds.empty? ? 0 : seconds.last - seconds.first

      # @param needs [Numeric, nil] seconds after the end of the last epoch
      # @param now [Time]
      # @return [Numeric, nil] seconds from now until then; before the first epoch has ended, from when it began
      def until_complete(needs, now)
        return needs unless needs && @epochs

        [needs - (now.to_f - @epochs.ended).clamp(-epoch_seconds, epoch_seconds), 1].max
      end

      # @param name [Symbol] a series
      # @return [String] why it is unknown
      def reason(name) = @history.reasons[name] || @left_out.fetch(name, "#{name} has no sample yet")

      # @return [Boolean] whether the process was forked by a process that samples itself
      def forked? = @history.curves.any?(&:baseline)

      private

      def lay_out
        @epochs = EPOCHS.lazy.map { |seconds| Epochs.new(@history, seconds) }.find { |one| enough?(one) }
        all = SERIES.keys.intersection(@history.series).to_h { |name| [name, @epochs.floors(@history[name])] }
        awake = all[:rss].each_index.select { |at| all[:rss][at] }
        keep(all.transform_values { |floors| floors.values_at(*awake) }, @epochs.times.values_at(*awake))
      end

      def keep(series, times)
        series = series.select { |name, floors| current?(name, floors) }
        lost = series.each_value.map { |floors| floors.index(&:itself) }.max || 0
        @seconds = times.drop(lost)
        series.each do |name, floors|
          known = floors.drop(lost)
          @latest[name] = known.rindex(&:itself)
          @series[name] = complete(known, @series[SERIES[name]] || @series[:rss])
        end
      end

      # Notes why not.
      def current?(name, floors)
        patience = 2 + (2 * @history[name].spacing_seconds.to_i / epoch_seconds)
        which, epochs = { first: LATE, last: patience }.find { |part, count| floors.public_send(part, count).none? }
        return true unless which

        @left_out[name] = "#{name} has no sample in the #{which} #{epochs * epoch_seconds / 60} minutes judged"
        false
      end

      # Fills in the epochs without a sample: between two samples, by the series that contains this one; after the last
      # sample, with that sample.
      def complete(floors, whole)
        return floors unless floors.include?(nil)

        known = floors.each_index.select { |at| floors[at] }
        known.each_cons(2) do |from, to|
          ends = floors.values_at(from, to)
          ((from + 1)...to).each { |at| floors[at] = between(ends, whole.values_at(from, at, to)) }
        end
        floors.fill(floors[known.last], known.last..) if known.any?
      end

      def between(known, whole)
        first, now, last = whole
        share = first == last ? 0 : (now - first).fdiv(last - first).clamp(0, 1)
        (known.first + ((known.last - known.first) * share)).round
      end

      def enough?(epochs)
        collections = @history.series.include?(:major_gcs) ? @history[:major_gcs].rings.last.last.compact : []
        epochs.seconds == EPOCHS.last || epochs.size < 2 * ENOUGH || collections.empty? ||
          collections.last - collections.first >= epochs.size
      end
    end

    # The epochs that lie wholly within a history. Each epoch, and each bucket of a ring, begins at a multiple of its
    # own length after the beginning of the coarsest ring's first bucket.
    #
    # @api private
    class Epochs
      # @return [Integer] length of one epoch
      attr_reader :seconds

      # @return [Integer] number of epochs
      attr_reader :size

      # @param history [History] with RSS
      # @param seconds [Integer]
      def initialize(history, seconds)
        fine, *, coarse = history[:rss].rings
        @seconds = seconds
        @origin = coarse.at
        @first = (elapsed(history.started_at) / seconds.to_f).ceil
        @size = [((elapsed(fine.at) + (fine.min.size * fine.step_seconds)) / seconds) - @first, 0].max
      end

      # @return [Integer] seconds since 1970 at which the last epoch ended; without one, at which the first begins
      def ended = @origin.to_i + ((@first + size) * seconds)

      # @return [Array<Integer>] seconds since 1970 at which the epochs begin
      def times = Array.new(size) { |epoch| @origin.to_i + ((@first + epoch) * seconds) }

      # @param curve [History::Curve]
      # @return [Array<Integer, nil>] the least sample in each epoch, from the finest ring that has the epoch
      def floors(curve)
        floors = []
        curve.rings.reverse_each do |ring|
          first, values = in_ring(ring)
          floors[first..] = values unless values.empty?
        end
        floors[@first, size] || []
      end

      private

      # A ring's first whole epoch, and the floors from there on.
      def in_ring(ring)
        start = elapsed(ring.at)
        shared = ring.step_seconds / seconds
        return [start / seconds, ring.min.flat_map { |floor| [floor] * shared }] if shared > 1

        [(start / seconds.to_f).ceil, whole(ring, -start % seconds).map { |buckets| buckets.compact.min }]
      end

      def whole(ring, skipped)
        ring.min.drop(skipped / ring.step_seconds).each_slice(seconds / ring.step_seconds)
      end

      # Seconds after the origin.
      def elapsed(time) = (time - @origin).round
    end
  end
end
