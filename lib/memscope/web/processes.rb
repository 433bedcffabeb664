# frozen_string_literal: true

module Memscope
  module Web
    # The processes that pages are about, and the readings of each, for all requests: the workers of the cluster that
    # this process belongs to, each of which answers over its own socket; or, without a cluster, this process.
    #
    # One thread at a time takes a reading. Threads that wait for the same reading share it. A reading is kept for ten
    # times as long as it took, but at least a second and at most half a minute. So any number of requests costs at most
    # a tenth of the time, unless a reading takes more than three seconds. Errors are kept as well. A forked child takes
    # its own readings.
    # @api private
    class Processes
      # Seconds.
      MIN_REST = 1.0
      MAX_REST = 30.0
      # A reading is kept for this many times the seconds that it took.
      REST = 10
      # How many readings are kept: those used most recently.
      MAX_KEPT = 64
      # Kinds that are cheap enough to be read while another thread takes another reading.
      CHEAP = %i[ledger history workers metrics].freeze
      # How kinds are read in this process that no class has for itself.
      KINDS = { metrics: -> { Memscope::Prometheus.text }, workers: -> { Workers.read },
                diagnosis_with_forecast: -> { Calls::Diagnosed.read } }.freeze
      # In seconds. :purge and :profile (to start or stop a profile) are totals for all workers that a call names; each
      # of the other timeouts is for one worker.
      TIMEOUTS = { purge: 30.0, profile: 10.0, reading: 20.0, graph: 40.0, state: 5.0 }.freeze
      # The minimum share of a total timeout that each worker gets, as long as that much is left.
      MIN_TIMEOUT_SHARE = 1 / 6r
      # Given instead of a worker's index, it means all workers.
      ALL = "all"
      # The beginnings of the profilers' calls (Calls::PROFILERS), by the kinds of profile that pages show.
      PROFILERS = { "malloc" => :malloc_profile, "objects" => :object_profile }.freeze
      STATUSES = { Client::Unreachable => 502, Client::Failed => 502, Unavailable => 502, Purge::Busy => 409,
                   Dump::Failed => 503 }.freeze

      # A process, with its number in the cluster.
      Place = Struct.new(:index, :pid) do
        def here? = pid == Process.pid

        # @return [Hash{String => String}] the labels of its samples in a profile of several processes
        def labels = { "worker" => index.to_s, "pid" => pid.to_s }

        def to_s = "#{index ? "worker #{index}" : "#{'this ' if here?}process"} (pid #{pid})"
      end

      # The result of a call, or the reason why it failed.
      Outcome = Struct.new(:place, :result, :reason) do
        def self.attempt(place)
          new(place, yield)
        rescue HttpError => e
          new(place, nil, e.message)
        end

        def done? = reason.nil?

        # @return [Hash{Symbol => Object}] for JSON, without the result
        def summary = { **place.to_h, done: done?, reason: reason }
      end

      # @param kinds [Hash{Symbol => Proc}] how some kinds are read in this process, besides KINDS
      # @param workers [Array<Worker>, nil] instead of those of Puma's cluster
      # @param timeouts [Hash{Symbol => Float}] overrides of TIMEOUTS
      def initialize(kinds = {}, clock: Clock.method(:now), workers: nil, timeouts: {})
        @kinds = { **KINDS, **kinds }
        @clock = clock
        @given = workers
        @timeouts = { **TIMEOUTS, **timeouts }
        @mutex = Mutex.new
        @one_at_a_time = Mutex.new
        @caches = {}
      end

      # @return [Array<Worker>] without the master, whose memory the workers share; empty without a cluster: then they
      #   are not read, since that would cost a ledger
      def workers
        return @given || [] unless @given.nil? && Runtime.current.workers

        fetch(:workers).select { |worker| worker.role == :worker }
      end

      def cluster? = workers.any?

      # @return [Array<Place>] one for each index: the younger worker if two have the same index, as during a restart
      def places = workers.group_by(&:index).values.map { |same| place_of(same.max_by { |one| one.booted_at.to_f }) }

      # The process that a page is about, no matter which process serves the request.
      #
      # @param form [Hash{String => Array<String>}] worker: an index; or pid: a worker's pid; without either, the first
      #   worker
      def place(form)
        worker, pid = form.values_at("worker", "pid").map { |values| values&.last }
        return choose(worker, all: false).first if worker || pid.nil?

        all = choose(nil)
        all.find { |place| place.pid.to_s == pid } or raise HttpError.parameter("pid", pid, all.map(&:pid).join(", "))
      end

      # @param given [String, nil] the index of a worker, or "all"; nil for all
      # @param all [Boolean] whether "all" is allowed with several workers
      # @return [Array<Place>] at least one; the younger worker if two have the given index, as during a restart
      def choose(given, all: true)
        all ||= !cluster?
        return everyone if given.nil? || (all && given == ALL)

        found = places.select { |place| place.index.to_s == given }
        return found unless found.empty?

        raise HttpError.parameter("worker", given, [*places.map(&:index), *(ALL if all)].join(", "))
      end

      # @param kind [Symbol] as for `fetch`
      # @return [Object] the reading of that process, possibly some seconds old
      def read(place, kind, **options)
        sharers = [workers.size, 1].max
        return fetch(kind, sharers: sharers, **options) if place.here?

        fetch(kind, place.pid, sharers: sharers, **options) { call(place, kind, **options) }
      rescue Invalid => e
        raise HttpError.invalid(e)
      end

      # @param kind [Symbol] a key of KINDS or a name of Calls; or any other, with a block that takes the reading
      # @param key [Array<Object>] further properties that distinguish this reading from others of its kind
      # @param sharers [Integer] how many processes take this reading, each for its own clients: all of them together
      #   cost at most a tenth of the time
      # @return [Object] the reading, possibly some seconds old
      def fetch(kind, *key, sharers: 1, **options, &block)
        # Consecutive scrapes reach different workers: if one still had older metrics, counters would seem to fall.
        rest = kind == :metrics ? 0 : ->(took) { (REST * took * sharers).clamp(MIN_REST, MAX_REST) }
        cache([kind, *key, options]).fetch(rest) { block ? yield : take(kind, options) }
      end

      # Drops all readings, because a process was changed.
      def forget = @mutex.synchronize { @caches = {} }

      # @param name [Symbol] :heap_graph or :censuses
      # @return [Array<Reading>] the readings that the process keeps of those taken in it, the oldest first
      def kept(place, name) = place.here? ? Runtime.current.kept(name) : call(place, :"kept_#{name}")

      # Runs one of Calls in the place's process.
      #
      # @param timeout [Symbol] a key of TIMEOUTS
      def call(place, name, timeout: :reading, **options)
        ask(place, @timeouts.fetch(timeout), name, **options)
      rescue Invalid => e
        raise HttpError.invalid(e)
      rescue *STATUSES.keys => e
        status = STATUSES.find { |type, _status| e.is_a?(type) }.last
        name = "#{place.to_s.capitalize}#{' failed' if status == 502}"
        raise HttpError.new(status, "#{name}: #{e.message}.", status == 409 ? { "retry-after" => "1" } : {})
      end

      # Runs one of Calls in one process after the other, so that they do not all stop at the same time. If a process
      # fails, the results of the others are kept. If it does not answer, the others still get their time.
      #
      # @param timeout [Symbol] the key in TIMEOUTS of the total
      def call_each(places, name, timeout:, **options)
        seconds = @timeouts[timeout]
        deadline = Clock.now + seconds
        places.map.with_index do |place, index|
          left = [deadline - Clock.now, 0].max
          share = [left / (places.size - index), seconds * MIN_TIMEOUT_SHARE].max.clamp(0, left)
          Outcome.new(place, ask(place, share, name, **options))
        rescue *STATUSES.keys, Invalid => e
          Outcome.new(place, nil, e.message)
        end
      end

      # Never cached: another worker may have started or stopped the profile a moment ago.
      #
      # @return [Array<Outcome>] for each place, a Hash as the profiler's Lease.state
      def profile_states(profiler, places)
        places.map do |place|
          Outcome.attempt(place) { call(place, :"#{profiler}_state", timeout: :state).transform_keys(&:to_sym) }
        end
      end

      # @param state [Hash{Symbol => Object}] the place's present state (profile_states)
      # @return [Object] the block's result, or without a block the profile, possibly some seconds old
      def kept_profile(profiler, place, state, *form)
        begun = state[:session]&.positive?
        raise HttpError.of(404, :no_profile, name: profiler.name.tr("_", " "), place: place) unless begun
        return fetch(:profile, profiler, place.pid, state) { call(place, :"#{profiler}_snapshot") } unless block_given?

        fetch(:rendered, profiler, place.pid, state, *form) { yield(kept_profile(profiler, place, state)) }
      end

      private

      def everyone = cluster? ? workers.map { |worker| place_of(worker) } : [Place.new(nil, Process.pid)]

      def place_of(worker) = Place.new(worker.index, worker.pid)

      # Without a socket if the place is this process.
      def ask(place, seconds, name, **options)
        return Calls.run(name, **options) if place.here?
        raise Client::Failed, "timed out before the request was sent" unless seconds.positive?

        Client.new(place.pid, timeout: seconds).call(name, **options)
      end

      # Another process needs no lock here: it answers one call at a time.
      def take(kind, options)
        read = @kinds[kind] || Loading.reader(*Calls::CALLS.fetch(kind).reader)
        CHEAP.include?(kind) ? read.call(**options) : @one_at_a_time.synchronize { read.call(**options) }
      end

      def cache(key)
        @mutex.synchronize do
          found = @caches.delete(key)
          @caches.shift if @caches.size >= MAX_KEPT
          @caches[key] = found || TtlCache.new(keep_errors: true, clock: @clock)
        end
      end
    end
  end
end
