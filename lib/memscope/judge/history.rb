# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # How the memory of this process has changed: series of its RSS, of each top row of the ledger, of malloc, of Ruby's
  # heap and garbage collections, every ten seconds for the last hour and coarser for a week, in 380 KiB.
  #
  #   Memscope::History.start
  #   # … later
  #   history = Memscope.history
  #   history.points(:rss).last.last                          # => 412876800
  #   history.points(:malloc, since: Time.now - 3600, step: 60)
  #
  # Puma's plugin, Workers.watch (Sidekiq) and Rails start a history, unless the setting `history` is false. A thread
  # takes the samples. Costly samples are so rare that together they use less than a thousandth of a core. While the
  # thread runs, Ruby does not detect deadlocks of the program's threads. A forked child of such a process samples
  # itself too, and starts with an empty history.
  class History < Reading
    # The series that are rows of a ledger. A row that a ledger lacks counts as 0 bytes.
    ROWS = %i[ruby_heap malloc stacks jit ruby_internal files shared_memory memscope unattributed].freeze
    # The series of a history. `live_bytes` are those of live slots, `held` is the malloc memory that objects report,
    # `malloc_active` and `malloc_resident` are jemalloc's `active` and `resident`, `threads` are Ruby's, `requests`
    # those that Puma has taken in this process.
    SERIES = Native.history_series
    # Seconds that a bucket lasts, for each ring.
    STEPS = Ring.declared(:step_seconds).one_of
    # How many buckets a ring has at most, by the seconds of each.
    BUCKETS = Native.history_buckets
    # The kinds of events: the process began to sample itself, or it forked a child.
    EVENTS = Event.declared(:kind).one_of

    # Buckets of one length, without a gap between them.
    class Ring < Record
      # @api private
      # @return [Ring] checked: each bucket has both samples or neither
      def self.load(hash, where)
        super.tap do |ring|
          next if [ring.min, ring.last].map { |samples| samples.map(&:nil?) }.uniq.one?

          Loader.refuse([where, :last], ring.last, "a sample for each of min, which has #{ring.min.size} items")
        end
      end

      # @param since [Integer] milliseconds since 1970
      # @return [Array<Point>] one for the bucket that contains that time, and one for each later bucket
      def points(since)
        step = step_seconds * 1000
        (bucket(since)...min.size).map do |at|
          Point.capture({ at: values[:at] + (at * step), min: min[at], last: last[at] })
        end
      end

      # @api private
      # @return [Ring] the buckets of both, as many as one ring has
      def after(earlier)
        most = BUCKETS.fetch(step_seconds)
        before = ((at - earlier.at) / step_seconds).round
        return self unless before.between?(1, most)

        least, joined = [[earlier.min, min], [earlier.last, last]].map do |its, own|
          [*Array.new(before) { |index| its[index] }, *own].last(most).freeze
        end
        changed(at: values[:at] - ((joined.size - min.size) * step_seconds * 1000), min: least, last: joined)
      end

      # @return [Boolean] whether the first bucket begins at that time or earlier
      def reaches?(since) = values[:at] <= since

      private

      # The index of the bucket that holds that time.
      def bucket(since) = ((since - values[:at]) / (step_seconds * 1000)).clamp(0, min.size)
    end

    # One series.
    class Curve < Record
      # @api private
      # @return [Curve] (see Ring#after)
      def after(earlier)
        earlier ? changed(rings: rings.zip(earlier.rings).map { |ring, before| ring.after(before) }.freeze) : self
      end

      # @param since [Integer] milliseconds since 1970
      # @param step [Integer, nil]
      # @return [Ring] the ring of that step; by default the finest ring that reaches back to `since`, and whose buckets
      #   are not shorter than the time between two samples
      def ring(since, step)
        return rings.find { |ring| ring.step_seconds == step } if step

        rings.find { |ring| ring.step_seconds >= spacing_seconds.to_i && ring.reaches?(since) } || rings.last
      end
    end

    include Lookup

    class << self
      # @api private
      # @raise [Invalid] also for samples without `started_at`
      def load(hash, where)
        super.tap do |history|
          next if history.started_at || history.curves.empty?

          Loader.refuse([where, :started_at], nil, "a time, since there are samples")
        end
      end

      # Starts to sample this process, in a thread, and the processes that it forks. Does nothing if sampling already
      # runs. After `stop`, the history continues with the samples that were kept.
      #
      # @return [Boolean] whether the process is sampled; if not, Memscope.history has the reasons
      def start = Sampler.start

      # Takes no more samples. Those that were taken are kept.
      #
      # @return [void]
      def stop = Sampler.stop

      # @return [Boolean]
      def running? = Sampler.running?

      # Starts if the block returns true. Never raises, so that it cannot make a boot fail.
      # @api private
      # @yieldreturn [Boolean] the setting `history`
      # @return [void]
      def boot
        start if yield
      rescue ArgumentError => e
        warn "memscope: history: process #{Process.pid} does not sample itself: #{e.message}"
      end

      # Implements Memscope.verdict.
      # @api private
      def verdict(now: false) = Loading.unit(:Verdict).read(Sampler, now: now)

      # (see Memscope.history)
      def read
        body = Native.history || { curves: [], events: [] }
        curves = body[:curves].each { |curve| curve[:spacing_seconds] = Runtime.current.history&.spacing(curve[:id]) }
        of({ **body, running: running?, reasons: Sampler.reasons.except(*curves.map { |curve| curve[:id] }) })
      end

      # @api private
      # @param body [Hash{Symbol => Object}] as Native.history returns it. Its events may be from a file
      # @param envelope [Hash, nil] as for `capture`
      def of(body, envelope = nil)
        events = body[:events].map { |event| { **event, kind: EVENTS[event[:kind]] } }.select { |event| event[:kind] }
        capture({ running: false, reasons: {}, cost: Cost.of(:T1), **body, events: events }, envelope)
      end
    end

    # @api private
    # @return [History] of both, with the series of this one
    def after(earlier)
      return self unless known? && earlier.known?

      joined = curves.map { |curve| curve.after(earlier.part(curve.id)) }.freeze
      changed(started_at: earlier.values[:started_at], curves: joined, events: [*earlier.events, *events].freeze)
    end

    # @return [Array<Symbol>] names of the series that have samples, some of SERIES
    def series = curves.map(&:id)

    # @api private
    # @return [Time, nil] when all its ROWS had been sampled: a change of RSS must not have begun before those of the
    #   rows, its parts
    def rows_since = (series & ROWS).filter_map { |id| points(id).find(&:last)&.at }.max

    # @param name [Symbol] one of `series`
    # @param since [Time, Numeric, nil] a time, or seconds since 1970; nil for all
    # @param step [Integer, nil] one of STEPS; by default the finest that reaches back far enough, and has a sample in
    #   each bucket
    # @return [Array<Point>] every bucket, oldest first
    # @raise [KeyError] for a series that is not here
    # @raise [ArgumentError] for an invalid time or step
    def points(name, since: nil, step: nil)
      number = since.is_a?(Numeric) && since.real? && since.to_f.finite?
      allowed = since.nil? || since.is_a?(Time) || number
      Field.refuse(:since, since, "nil, a Time, seconds since 1970", call: "Memscope::History") unless allowed
      Field.choice(:step, step, [nil, *STEPS], call: "Memscope::History")
      from = since ? (since.to_r * 1000).floor : values[:started_at]
      self[name].ring(from, step).points(from)
    end
  end
end

require_relative "history/sampler"
