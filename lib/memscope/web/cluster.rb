# frozen_string_literal: true

require "tmpdir"
require_relative "../census"
require_relative "../client"
require_relative "../dump"
require_relative "../heap_graph/kept"
require_relative "../malloc_profile"
require_relative "../profile/formats"
require_relative "../purge"
require_relative "readings"
require_relative "response"

module Memscope
  module Web
    # Calls to the workers of the cluster that this process belongs to, each over its own socket; or, without a cluster,
    # to this process. Workers are called one after the other, so that they do not all stop serving at once.
    #
    # @api private
    class ClusterCalls
      # In seconds. :purge and :profile (to start or stop one) are totals for all other workers together; each of the
      # others is for one worker.
      TIMEOUTS = { purge: 30.0, profile: 10.0, reading: 20.0, graph: 40.0, snapshot: 20.0,
                   state: 2.0 }.freeze
      # The least share of such a total that each worker gets, as long as that much is left.
      SHARE = 1 / 6r
      # Seconds after which a profile that was started from a page ends automatically.
      PROFILE_SECONDS = 3600
      # Seconds that a heap dump may take: a browser waits meanwhile.
      DUMP_SECONDS = 30
      # Given instead of a worker's index, it means all workers.
      ALL = "all"
      UNANSWERED = [Client::Unreachable, Client::Failed].freeze
      ERRORS = [*UNANSWERED, MallocProfile::Unavailable, Purge::Busy, ArgumentError].freeze
      private_constant :TIMEOUTS, :SHARE, :PROFILE_SECONDS, :DUMP_SECONDS, :UNANSWERED, :ERRORS

      # A process, with its number in the cluster.
      Place = Struct.new(:index, :pid) do
        # @return [Boolean]
        def here? = pid == Process.pid

        # @return [String, nil] what names this process in a query; nil without a cluster
        def query = ("worker=#{index}" if index)

        # @return [Hash{String => String}] the labels of its samples in a profile of several processes
        def labels = { "worker" => index.to_s, "pid" => pid.to_s }

        # @return [String]
        def to_s = index ? "worker #{index} (pid #{pid})" : "this process (pid #{pid})"
      end

      # The result of a call, or the reason why it failed.
      Outcome = Struct.new(:place, :result, :reason) do
        # @param place [Place]
        # @return [Outcome] the outcome of the block
        def self.attempt(place)
          new(place, yield)
        rescue HttpError => e
          new(place, nil, e.message)
        rescue ArgumentError => e # the profile has been replaced by another one
          new(place, nil, "#{place}: #{e.message}")
        end

        # @return [Boolean]
        def done? = reason.nil?

        # @yieldparam place [Place]
        # @yieldparam result [Object]
        # @return [Outcome] the outcome of the block; self if this one has already failed
        def follow = done? ? self.class.attempt(place) { yield(place, result) } : self
      end

      # @yieldreturn [Workers]
      # @return [Array<Worker>] without the master, whose memory the workers share; empty without a cluster, in which
      #   case the block, which would cost a ledger, is not called
      def self.workers = Memscope::Workers.current ? yield.select { |worker| worker.role == :worker } : []

      # @return [Array<Worker>] empty without a cluster
      attr_reader :workers

      # @param readings [Readings]
      # @param workers [Array<Worker>] empty without a cluster
      # @param timeouts [Hash{Symbol => Float}] overrides of TIMEOUTS
      def initialize(readings, workers: self.class.workers { readings.fetch(:workers) }, timeouts: {})
        @readings = readings
        @workers = workers
        @timeouts = { **TIMEOUTS, **timeouts }
      end

      # @return [Boolean]
      def cluster? = @workers.any?

      # @return [Array<Place>] one for each index; if two workers have the same index, as during a restart, the younger
      def places = @workers.map(&:index).uniq.flat_map { |index| choose(index.to_s) }

      # The process of a page, no matter which one serves the request.
      #
      # @param form [Hash{String => Array<String>}] worker: an index; or pid: a worker's pid; without either, the first
      #   worker
      # @return [Place]
      # @raise [HttpError] for an unknown worker
      def place(form)
        worker, pid = form.values_at("worker", "pid").map { |values| values&.last }
        return choose(worker, all: false).first if worker || pid.nil?

        all = choose(nil)
        all.find { |place| place.pid.to_s == pid } or
          raise HttpError.parameter("pid", pid, all.map(&:pid).join(", "))
      end

      # @param place [Place]
      # @param kind [Symbol] a key of Readings::KINDS
      # @param options [Hash{Symbol => Object}] of the kind
      # @return [Object] the reading of that process, possibly some seconds old
      # @raise [HttpError] if the process does not answer
      # @raise [ArgumentError] for wrong options
      def read(place, kind, **options)
        sharers = [@workers.size, 1].max
        return @readings.fetch(kind, sharers: sharers, **options) if place.here?

        @readings.fetch(kind, place.pid, sharers: sharers, **options) do
          answered(place) { relayed(kind, ask(place.pid, @timeouts[:reading], kind, **options)) }
        end
      end

      # @param given [String, nil] the index of a worker, or "all"; nil for all
      # @param all [Boolean] whether "all" is allowed with several workers
      # @return [Array<Place>] at least one; if two workers have the given index, as during a restart, the younger
      # @raise [HttpError] for an unknown worker
      def choose(given, all: true)
        all ||= !cluster?
        workers = @workers
        unless given.nil? || (all && given == ALL)
          workers = @workers.select { |worker| worker.index.to_s == given }.max_by(1) { |worker| worker.booted_at.to_f }
          raise HttpError.parameter("worker", given, allowed(all)) if workers.empty?
        end
        return [Place.new(nil, Process.pid)] if workers.empty?

        workers.map { |worker| Place.new(worker.index, worker.pid) }
      end

      # @param levers [Array<Symbol>] empty for all
      # @param dry_run [Boolean]
      # @param worker [String, nil] as given to `choose`
      # @yieldparam place [Place] each process before it is called
      # @return [Purge::Result, Purge::WorkerResults] the latter if several workers were called
      # @raise [HttpError] for an unknown worker, or if the only one that was called did not answer
      # @raise [ArgumentError, Purge::Busy] as Memscope.purge
      def purge(levers, dry_run:, worker: nil, &announce)
        places = choose(worker)
        return purge_each(places, levers, dry_run, announce) unless places.one?

        announce&.call(places.first)
        return Memscope.purge(*levers, dry_run: dry_run) if places.first.here?

        answered(places.first) { ask(places.first.pid, @timeouts[:purge], :purge, levers: levers, dry_run: dry_run) }
      end

      # @param places [Array<Place>]
      # @param options [Hash] options of MallocProfile.start
      # @return [Array<Outcome>]
      def start_profile(places, **options)
        options = { seconds: PROFILE_SECONDS, shared: true, **options }
        in_turn(places, @timeouts[:profile], :malloc_profile_start, options) { MallocProfile::Lease.start(**options) }
      end

      # Stops profiles that were started from a page, whichever worker served it.
      #
      # @param places [Array<Place>]
      # @return [Array<Outcome>]
      def stop_profile(places)
        in_turn(places, @timeouts[:profile], :malloc_profile_stop_shared) { MallocProfile::Lease.stop_shared }
      end

      # @param places [Array<Place>]
      # @return [Array<Outcome>] each with the place's profile_state
      def profile_states(places) = places.map { |place| Outcome.attempt(place) { profile_state(place) } }

      # Never cached: another worker may have started or stopped the profile a moment ago.
      #
      # @param place [Place]
      # @return [Hash{Symbol => Object}] as MallocProfile::Lease.state
      # @raise [HttpError] if the process does not answer
      def profile_state(place)
        return MallocProfile::Lease.state if place.here?

        answered(place) { ask(place.pid, @timeouts[:state], :malloc_profile_state).transform_keys(&:to_sym) }
      end

      # @param place [Place]
      # @return [Profile] the running profile, or the last one
      # @raise [HttpError] if there is none, or the process does not answer
      def profile(place)
        answered(place) do
          place.here? ? MallocProfile.snapshot : ask(place.pid, @timeouts[:snapshot], :malloc_profile_snapshot)
        end
      end

      # @param place [Place]
      # @param state [Hash{Symbol => Object}] the place's present profile_state
      # @return [Readings::Rendered] the profile in this state, possibly read some seconds ago
      # @raise [HttpError] if there is none, or the process does not answer
      def kept_profile(place, state)
        raise none(place) if state[:session].zero?

        @readings.fetch_rendered(:profile, place.pid, state) { profile(place) }
      end

      # Takes a census in the process, which keeps it.
      #
      # @param place [Place]
      # @param gc [Boolean] as Memscope.census
      # @raise [HttpError] if the process does not answer
      def take_census(place, gc:)
        answered(place) do
          place.here? ? Census::Kept.take(gc: gc) : ask(place.pid, @timeouts[:reading], :take_census, gc: gc)
        end
      end

      # @param place [Place]
      # @return [Array<Census>] the last two of the process, or fewer; the older first
      # @raise [HttpError] if the process does not answer
      def kept_censuses(place)
        answered(place) do
          next Census::Kept.censuses if place.here?

          understood("censuses", ask(place.pid, @timeouts[:reading], :kept_censuses)) do |bodies|
            raise ArgumentError, "no list" unless bodies.is_a?(Array)

            bodies.map { |body| Census.from_h(body) }
          end
        end
      end

      # Takes a heap graph in the process, which keeps it.
      #
      # @param place [Place]
      # @param options [Hash{Symbol => Object}] as HeapGraph::Kept.take
      # @raise [HttpError] if the process does not answer
      # @raise [ArgumentError] for wrong options
      def take_heap_graph(place, **options)
        answered(place) do
          place.here? ? HeapGraph::Kept.take(**options) : ask(place.pid, @timeouts[:graph], :take_heap_graph, **options)
        end
      end

      # Has the process write a heap dump. It is under a path that nobody else may open, and that has gone when this
      # returns, whether there is a dump or not.
      #
      # @param place [Place]
      # @param format [Symbol] one of Dump::FORMATS
      # @return [File] the dump, open for reading
      # @raise [HttpError] if there is none
      def dump(place, format)
        Dir.mktmpdir("memscope-") do |directory|
          path = File.join(directory, "dump")
          answered(place) do
            options = { format: format, deadline: DUMP_SECONDS }
            place.here? ? Dump.write(path, **options) : ask(place.pid, @timeouts[:graph], :dump, path: path, **options)
          end
          File.open(path, "rb")
        end
      rescue SystemCallError => e
        raise HttpError.new(503, "No dump was written: #{e.class.new.message}.")
      end

      # @param place [Place]
      # @return [HeapGraph, nil] the last one of the process
      # @raise [HttpError] if the process does not answer
      def kept_heap_graph(place)
        answered(place) do
          next HeapGraph::Kept.graph if place.here?

          understood("heap_graph", ask(place.pid, @timeouts[:reading], :kept_heap_graph)) do |body|
            body && HeapGraph.from_h(body)
          end
        end
      end

      private

      def understood(key, answer)
        raise ArgumentError, "no #{key}" unless answer.is_a?(Hash) && answer.key?(key)

        yield answer[key]
      rescue ArgumentError => e
        raise Client::Failed, "its answer is not understood: #{e.message}"
      end

      def relayed(kind, answer)
        kind == :diagnosis_with_forecast ? Readings::Diagnosed.load(answer) : answer
      rescue ArgumentError => e
        raise Client::Failed, "its answer is not understood: #{e.message}"
      end

      def allowed(all) = [*@workers.map(&:index).uniq, *(ALL if all)].join(", ")

      def purge_each(places, levers, dry_run, announce)
        since = Clock.now
        options = { levers: levers, dry_run: dry_run }
        outcomes = in_turn(places, @timeouts[:purge], :purge, options, announce) do
          Memscope.purge(*levers, dry_run: dry_run)
        end
        results = outcomes.filter_map(&:result)
        returned = results.filter_map(&:returned_bytes)
        parts = outcomes.map { |outcome| { **outcome.place.to_h, result: outcome.result, reason: outcome.reason } }
        own = results.map(&:returned_private_bytes)
        body = { dry_run: dry_run, returned_bytes: (returned.sum if returned.any?),
                 returned_private_bytes: (own.sum if own.any? && own.none?(nil)), workers: parts, reasons: {},
                 cost: cost(results, Clock.now - since) }
        Purge::WorkerResults.capture(body)
      end

      # While others purge, this process waits without the GVL.
      def cost(results, seconds)
        own = results.find { |result| result.pid == Process.pid }&.cost
        { tier: :T3, wall_us: (seconds * 1_000_000).to_i, gvl_us: own&.gvl_us || 0,
          scratch_bytes: own&.scratch_bytes || 0 }
      end

      # If a process fails, the results of the others are kept; if it does not answer, the others still get their time.
      def in_turn(places, seconds, name, options = {}, announce = nil)
        deadline = Clock.now + seconds
        places.map.with_index do |place, index|
          announce&.call(place)
          left = [deadline - Clock.now, 0].max
          share = [left / (places.size - index), seconds * SHARE].max.clamp(0, left)
          Outcome.new(place, place.here? ? yield : ask(place.pid, share, name, **options))
        rescue *ERRORS => e
          Outcome.new(place, nil, e.message)
        end
      end

      def ask(pid, seconds, name, **options)
        raise Client::Failed, "timed out before the request was sent" unless seconds.positive?

        Client.new(pid, timeout: seconds).call(name, **options)
      end

      def answered(place)
        yield
      rescue MallocProfile::Unavailable
        raise none(place)
      rescue *UNANSWERED => e
        raise HttpError.new(502, "#{place.to_s.capitalize} failed: #{e.message}.")
      rescue Dump::Failed => e
        raise HttpError.new(503, "#{e.message.sub(/\A./, &:upcase)}.")
      end

      def none(place) = HttpError.new(404, "No malloc profile was started in #{place}.")
    end

    # GET /debug/pprof/heap, as in Go: the running malloc profile for Pyroscope, Parca and `go tool pprof`; with
    # seconds=N the change in the next N seconds. In a cluster all workers' profiles are merged, or worker=N chooses
    # one. Go's text format (debug=1) is refused: it has addresses, which no other program can resolve to Ruby frames.
    #
    # @api private
    class HeapProfile
      TYPE = "application/octet-stream"
      HEADERS = { "content-disposition" => 'attachment; filename="heap.pb.gz"' }.freeze
      # The longest delta, in seconds.
      LONGEST = 300
      NONE = "No malloc profile runs in %s. Start one on the page /profile, or with Memscope::MallocProfile.start."
      private_constant :TYPE, :HEADERS, :LONGEST, :NONE

      def initialize
        @delta = Mutex.new
      end

      # Errors are sentences in plain text: the client is no browser.
      #
      # @param request [Request]
      # @param readings [Readings]
      # @return [Array(Integer, Hash, Array<String>)]
      def response(request, readings)
        worker, seconds = parameters(request)
        calls = ClusterCalls.new(readings)
        states = running(calls.profile_states(calls.choose(worker)))
        body = if seconds && !request.head?
                 delta(calls, states, seconds)
               else
                 readings.fetch(:pprof, calls.cluster?, states) { whole(calls, states) }
               end
        Response.of(200, TYPE, body, HEADERS)
      rescue HttpError => e
        Response.sentence(e.status, :text, e.message, e.headers)
      end

      private

      # @return [Array(String, Integer)] the worker, and the seconds of a delta; each nil if it was not given
      def parameters(request)
        worker, seconds, debug = request.query.values_at("worker", "seconds", "debug").map { |values| values&.last }
        unless [nil, "", "0"].include?(debug)
          raise HttpError.parameter("debug", debug, "0; for readable text, see /profile.txt")
        end

        return [worker, nil] unless seconds
        return [worker, seconds.to_i] if seconds.match?(/\A\d{1,3}\z/) && seconds.to_i.between?(1, LONGEST)

        raise HttpError.parameter("seconds", seconds, "a whole number from 1 to #{LONGEST}")
      end

      # @return [Array<ClusterCalls::Outcome>] the outcomes with a running profile, and the failed ones
      def running(states)
        running = states.reject { |state| state.done? && !state.result[:running] }
        return running if running.any?(&:done?)

        none = format(NONE, states.map(&:place).join(", "))
        raise HttpError.new(running.any? ? 502 : 404, [none, *running.map(&:reason)].join(" "))
      end

      def whole(calls, states)
        encoded(calls, states.map { |one| one.follow { |place, state| calls.kept_profile(place, state).reading } })
      end

      # Occupies one of the server's threads for that long; only one request at a time.
      def delta(calls, states, seconds)
        raise HttpError.new(503, "Another request is taking a delta.", { "retry-after" => seconds.to_s }) unless
          @delta.try_lock

        begin
          earlier = states.map { |one| one.follow { |place, _state| calls.profile(place) } }
          sleep(seconds)
          encoded(calls, earlier.map { |one| one.follow { |place, profile| calls.profile(place) - profile } })
        ensure
          @delta.unlock
        end
      end

      # A worker that failed becomes a comment in the profile of the others.
      def encoded(calls, outcomes)
        found, missing = outcomes.partition(&:done?)
        raise HttpError.new(502, missing.map(&:reason).join(" ")) if found.empty?

        parts = found.map { |outcome| [outcome.result, calls.cluster? ? outcome.place.labels : {}] }
        Memscope::Profile::Formats.merged_pprof(parts, comments: missing.map { |one| "missing: #{one.reason}" })
      end
    end
  end
end
