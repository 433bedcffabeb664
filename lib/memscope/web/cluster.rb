# frozen_string_literal: true

require "fileutils"
require "tmpdir"

module Memscope
  module Web
    # Calls to the workers of the cluster that this process belongs to, each over its own socket; or, without a cluster,
    # to this process. Workers are called one after the other, so that they do not all stop serving at once.
    #
    # @api private
    class ClusterCalls
      # In seconds. :purge and :profile (to start or stop a profile) are totals for all workers that a call names; each
      # of the other timeouts is for one worker.
      TIMEOUTS = { purge: 30.0, profile: 10.0, reading: 20.0, graph: 40.0, snapshot: 20.0,
                   state: 5.0 }.freeze
      # The least share of a total timeout that each worker gets, as long as that much is left.
      SHARE = 1 / 6r
      # Seconds after which a profile that was started from a page ends automatically.
      PROFILE_SECONDS = 3600
      # Seconds that a heap dump may take: a browser waits meanwhile.
      DUMP_SECONDS = 30
      # Given instead of a worker's index, it means all workers.
      ALL = "all"
      # The profilers, by the kinds of profile that pages show.
      PROFILERS = { "malloc" => MallocProfile, "objects" => ObjectProfile }.freeze
      # The prefixes of the profilers' calls.
      CALLS = { MallocProfile => "malloc_profile", ObjectProfile => "object_profile" }.freeze
      UNAVAILABLE = [MallocProfile::Unavailable, ObjectProfile::Unavailable].freeze
      UNANSWERED = [Client::Unreachable, Client::Failed].freeze
      ERRORS = [*UNANSWERED, *UNAVAILABLE, Purge::Busy, ArgumentError].freeze
      private_constant :CALLS, :UNAVAILABLE, :TIMEOUTS, :SHARE, :PROFILE_SECONDS, :DUMP_SECONDS, :UNANSWERED, :ERRORS

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
        # @return [Outcome] the outcome of the block; self if this outcome is already a failure
        def follow = done? ? self.class.attempt(place) { yield(place, result) } : self
      end

      # @yieldreturn [Workers]
      # @return [Array<Worker>] without the master, whose memory the workers share; empty without a cluster: then the
      #   block is not called, since it would cost a ledger
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

      # @return [Array<Place>] one for each index: the younger worker if two have the same index, as during a restart
      def places = @workers.map(&:index).uniq.flat_map { |index| choose(index.to_s) }

      # The process that a page is about, no matter which process serves the request.
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
      # @param options [Hash{Symbol => Object}] options of this kind
      # @return [Object] the reading of that process, possibly some seconds old
      # @raise [HttpError] if the process does not answer
      # @raise [ArgumentError] for invalid options
      def read(place, kind, **options)
        sharers = [@workers.size, 1].max
        return @readings.fetch(kind, sharers: sharers, **options) if place.here?

        @readings.fetch(kind, place.pid, sharers: sharers, **options) { answer(place, :reading, kind, **options) }
      end

      # @param given [String, nil] the index of a worker, or "all"; nil for all
      # @param all [Boolean] whether "all" is allowed with several workers
      # @return [Array<Place>] at least one; the younger worker if two have the given index, as during a restart
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

      # @param places [Array<Place>]
      # @param levers [Array<Symbol>] empty for all
      # @param dry_run [Boolean]
      # @yieldparam place [Place] each process before it is called
      # @return [Purge::Result, Purge::WorkerResults] the latter if several workers were called
      # @raise [HttpError] if only one process was called, and it did not answer
      # @raise [ArgumentError, Purge::Busy] like Memscope.purge
      def purge(places, levers, dry_run:, &announce)
        return purge_each(places, levers, dry_run, announce) unless places.one?

        announce&.call(places.first)
        answer(places.first, :purge, :purge, levers: levers, dry_run: dry_run)
      end

      # @param profiler [Module] one of PROFILERS
      # @param places [Array<Place>]
      # @param options [Hash] options of the profiler's `start`
      # @return [Array<Outcome>]
      def start_profile(profiler, places, **options)
        in_turn(places, :profile, name_of(profiler, :start), { seconds: PROFILE_SECONDS, shared: true, **options })
      end

      # Stops profiles that were started from a page, whichever worker served that page.
      #
      # @param profiler [Module] one of PROFILERS
      # @param places [Array<Place>]
      # @return [Array<Outcome>]
      def stop_profile(profiler, places) = in_turn(places, :profile, name_of(profiler, :stop_shared))

      # @param profiler [Module] one of PROFILERS
      # @param places [Array<Place>]
      # @return [Array<Outcome>] each with the place's profile_state
      def profile_states(profiler, places)
        places.map { |place| Outcome.attempt(place) { profile_state(profiler, place) } }
      end

      # Never cached: another worker may have started or stopped the profile a moment ago.
      #
      # @param profiler [Module] one of PROFILERS
      # @param place [Place]
      # @return [Hash{Symbol => Object}] as the profiler's Lease.state
      # @raise [HttpError] if the process does not answer
      def profile_state(profiler, place)
        answer(place, :state, name_of(profiler, :state)).transform_keys(&:to_sym)
      end

      # @param profiler [Module] one of PROFILERS
      # @param place [Place]
      # @return [Profile] the running profile, or the last one
      # @raise [HttpError] if there is none, or the process does not answer
      def profile(profiler, place)
        answer(place, :snapshot, name_of(profiler, :snapshot))
      rescue *UNAVAILABLE
        raise none(profiler, place)
      end

      # @param profiler [Module] one of PROFILERS
      # @param place [Place]
      # @param state [Hash{Symbol => Object}] the place's present profile_state
      # @return [Readings::Rendered] the profile in this state, possibly read some seconds ago
      # @raise [HttpError] if there is none, or the process does not answer
      def kept_profile(profiler, place, state)
        raise none(profiler, place) if state[:session].zero?

        @readings.fetch_rendered(:profile, profiler, place.pid, state) { profile(profiler, place) }
      end

      # Takes a census in the process, which keeps it.
      #
      # @param place [Place]
      # @param gc [Boolean] as in Memscope.census
      # @raise [HttpError] if the process does not answer
      def take_census(place, gc:) = answer(place, :reading, :take_census, gc: gc)

      # @param place [Place]
      # @return [Array<Census>] the last two censuses of the process, or fewer; the older first
      # @raise [HttpError] if the process does not answer
      def kept_censuses(place)
        kept(place, :kept_censuses, "censuses") do |bodies|
          raise ArgumentError, "no list" unless bodies.is_a?(Array)

          bodies.map { |body| Census.from_h(body) }
        end
      end

      # Takes a heap graph in the process, which keeps it.
      #
      # @param place [Place]
      # @param options [Hash{Symbol => Object}] as in HeapGraph::Kept.take
      # @raise [HttpError] if the process does not answer
      # @raise [ArgumentError] for invalid options
      def take_heap_graph(place, **options) = answer(place, :graph, :take_heap_graph, **options)

      # Has the process write a heap dump, to a path that no other user may open. The path is removed before this method
      # returns, whether or not there is a dump.
      #
      # @param place [Place]
      # @param format [Symbol] one of Dump::FORMATS
      # @return [File] the dump, open for reading
      # @raise [HttpError] if there is none
      def dump(place, format)
        directory = Dir.mktmpdir("memscope-")
        path = File.join(directory, "dump")
        answer(place, :graph, :dump, path: path, format: format, deadline: DUMP_SECONDS)
        File.open(path, "rb")
      rescue SystemCallError => e
        raise HttpError.new(503, "No dump was written: #{e.class.new.message}.")
      ensure
        remove(directory) if directory
      end

      # @param place [Place]
      # @return [HeapGraph, nil] the last heap graph of the process; nil if there is none
      # @raise [HttpError] if the process does not answer
      def kept_heap_graph(place)
        kept(place, :kept_heap_graph, "heap_graph") { |body| body && HeapGraph.from_h(body) }
      end

      private

      # A process that did not answer in time may still create its file, and remove it, while this method runs. The
      # process does so only once, so the retries end.
      def remove(directory)
        FileUtils.remove_entry(directory)
      rescue Errno::ENOTEMPTY, Errno::ENOENT
        retry if File.exist?(directory)
      end

      # What the process has kept. The block converts it from the answer's JSON.
      def kept(place, name, key)
        found = answer(place, :reading, name)
        raise ArgumentError, "no #{key}" unless found.is_a?(Hash) && found.key?(key)

        yield found[key]
      rescue ArgumentError => e
        raise failed(place, "its answer is not understood: #{e.message}")
      end

      def allowed(all) = [*@workers.map(&:index).uniq, *(ALL if all)].join(", ")

      def purge_each(places, levers, dry_run, announce)
        since = Clock.now
        outcomes = in_turn(places, :purge, :purge, { levers: levers, dry_run: dry_run }, announce)
        results = outcomes.filter_map(&:result)
        returned = results.filter_map(&:returned_bytes)
        parts = outcomes.map { |outcome| { **outcome.place.to_h, result: outcome.result, reason: outcome.reason } }
        own = results.map(&:returned_private_bytes)
        body = { dry_run: dry_run, returned_bytes: (returned.sum if returned.any?),
                 returned_private_bytes: (own.sum if own.any? && own.none?(nil)), workers: parts, reasons: {},
                 cost: cost(results, Clock.now - since) }
        Purge::WorkerResults.capture(body)
      end

      # While other workers purge, this process waits without the GVL.
      def cost(results, seconds)
        own = results.find { |result| result.pid == Process.pid }&.cost
        { tier: :T3, wall_us: (seconds * 1_000_000).to_i, gvl_us: own&.gvl_us || 0,
          scratch_bytes: own&.scratch_bytes || 0 }
      end

      # If a process fails, the results of the others are kept; if it does not answer, the others still get their time.
      def in_turn(places, timeout, name, options = {}, announce = nil)
        seconds = @timeouts[timeout]
        deadline = Clock.now + seconds
        places.map.with_index do |place, index|
          announce&.call(place)
          left = [deadline - Clock.now, 0].max
          share = [left / (places.size - index), seconds * SHARE].max.clamp(0, left)
          Outcome.new(place, ask(place, share, name, **options))
        rescue *ERRORS => e
          Outcome.new(place, nil, e.message)
        end
      end

      # Runs one of Calls in the place's process; without a socket if that is this process.
      def ask(place, seconds, name, **options)
        return Calls.run(name, **options) if place.here?
        raise Client::Failed, "timed out before the request was sent" unless seconds.positive?

        Client.new(place.pid, timeout: seconds).call(name, **options)
      end

      # Like `ask`, with one of the timeouts, but raises an HttpError if the process does not answer.
      def answer(place, timeout, name, **options)
        ask(place, @timeouts[timeout], name, **options)
      rescue *UNANSWERED => e
        raise failed(place, e.message)
      rescue Dump::Failed => e
        raise HttpError.new(503, "#{e.message.sub(/\A./, &:upcase)}.")
      end

      def failed(place, why) = HttpError.new(502, "#{place.to_s.capitalize} failed: #{why}.")

      def name_of(profiler, call) = :"#{CALLS.fetch(profiler)}_#{call}"

      def none(profiler, place)
        HttpError.new(404, "No #{CALLS.fetch(profiler).tr('_', ' ')} was started in #{place}.")
      end
    end

    # GET /debug/pprof/heap, as in Go: the running malloc profile for Pyroscope, Parca and `go tool pprof`; and GET
    # /debug/pprof/objects: the running profile of objects. With seconds=N, both serve the change in the next N seconds.
    # In a cluster, all workers' profiles are merged, or worker=N chooses one. Go's text format (debug=1) is refused: it
    # has addresses, which no other program can resolve to Ruby frames.
    #
    # @api private
    class HeapProfile
      # The longest delta, in seconds.
      LONGEST = 300
      private_constant :LONGEST

      # @param kind [String] a key of ClusterCalls::PROFILERS
      # @param name [String] of the file
      def initialize(kind, name)
        @profiler = ClusterCalls::PROFILERS.fetch(kind)
        @kind = kind.delete_suffix("s")
        @headers = { "content-disposition" => "attachment; filename=\"#{name}.pb.gz\"" }.freeze
        @delta = Mutex.new
      end

      # Errors are sentences in plain text: the client is not a browser.
      #
      # @param request [Request]
      # @param readings [Readings]
      # @return [Array(Integer, Hash, Array<String>)]
      def response(request, readings)
        worker, seconds = parameters(request)
        calls = ClusterCalls.new(readings)
        states = running(calls.profile_states(@profiler, calls.choose(worker)))
        body = if seconds && !request.head?
                 delta(calls, states, seconds)
               else
                 readings.fetch(:pprof, @profiler, calls.cluster?, states) { whole(calls, states) }
               end
        Response.of(200, "application/octet-stream", body, @headers)
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

        none = "No #{@kind} profile runs in #{states.map(&:place).join(', ')}. Start one on the page /profile, or " \
               "with #{@profiler}.start."
        raise HttpError.new(running.any? ? 502 : 404, [none, *running.map(&:reason)].join(" "))
      end

      def whole(calls, states)
        encoded(calls, states.map do |one|
          one.follow { |place, state| calls.kept_profile(@profiler, place, state).reading }
        end)
      end

      # Occupies one of the server's threads for that many seconds, so only one request at a time may do so.
      def delta(calls, states, seconds)
        raise HttpError.new(503, "Another request is taking a delta.", { "retry-after" => seconds.to_s }) unless
          @delta.try_lock

        begin
          earlier = states.map { |one| one.follow { |place, _state| calls.profile(@profiler, place) } }
          sleep(seconds)
          encoded(calls, earlier.map do |one|
            one.follow { |place, profile| calls.profile(@profiler, place) - profile }
          end)
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
