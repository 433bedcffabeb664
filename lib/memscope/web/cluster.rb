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
      TIMEOUTS = { purge: 30.0, profile: 10.0, reading: 20.0, graph: 40.0, state: 5.0 }.freeze
      # The minimum share of a total timeout that each worker gets, as long as that much is left.
      SHARE = 1 / 6r
      # Seconds after which a profile that was started from a page ends automatically.
      PROFILE_SECONDS = 3600
      # Seconds that a heap dump may take: a browser waits meanwhile.
      DUMP_SECONDS = 30
      # Given instead of a worker's index, it means all workers.
      ALL = "all"
      # The beginnings of the profilers' calls (Calls::PROFILERS), by the kinds of profile that pages show.
      PROFILERS = { "malloc" => :malloc_profile, "objects" => :object_profile }.freeze
      UNANSWERED = [Client::Unreachable, Client::Failed].freeze
      ERRORS = [*UNANSWERED, Unavailable, Purge::Busy, Invalid].freeze
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
        end

        # @return [Boolean]
        def done? = reason.nil?

        # @return [Hash{Symbol => Object}] for JSON, without the result
        def summary = { **place.to_h, done: done?, reason: reason }
      end

      # @yieldreturn [Workers]
      # @return [Array<Worker>] without the master, whose memory the workers share; empty without a cluster: then the
      #   block is not called, since it would cost a ledger
      def self.workers = Runtime.current.workers ? yield.select { |worker| worker.role == :worker } : []

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

      # @param given [String, nil] the index of a worker, or "all"; nil for all
      # @param all [Boolean] whether "all" is allowed with several workers
      # @return [Array<Place>] at least one; the younger worker if two have the given index, as during a restart
      # @raise [HttpError] for an unknown worker
      def choose(given, all: true)
        all ||= !cluster?
        return [younger(given, all)] unless given.nil? || (all && given == ALL)

        cluster? ? @workers.map { |worker| place_of(worker) } : [Place.new(nil, Process.pid)]
      end

      # @param place [Place]
      # @param kind [Symbol] as for Readings#fetch
      # @param options [Hash{Symbol => Object}] options of this kind
      # @return [Object] the reading of that process, possibly some seconds old
      # @raise [HttpError] if the process does not answer, or for invalid options
      def read(place, kind, **options)
        sharers = [@workers.size, 1].max
        return @readings.fetch(kind, sharers: sharers, **options) if place.here?

        @readings.fetch(kind, place.pid, sharers: sharers, **options) { call(place, kind, **options) }
      rescue Invalid => e
        raise HttpError.invalid(e)
      end

      # Runs one of Calls in the place's process.
      #
      # @param place [Place]
      # @param name [Symbol]
      # @param timeout [Symbol] a key of TIMEOUTS
      # @param options [Hash{Symbol => Object}] the options of the call
      # @return [Object] its answer
      # @raise [HttpError] if the process does not answer, or refuses
      def call(place, name, timeout: :reading, **options)
        ask(place, @timeouts.fetch(timeout), name, **options)
      rescue *UNANSWERED => e
        raise HttpError.new(502, "#{place.to_s.capitalize} failed: #{e.message}.")
      rescue Unavailable
        raise HttpError.new(404, "No #{name[/[a-z]+_profile/].tr('_', ' ')} was started in #{place}.")
      rescue Invalid => e
        raise HttpError.invalid(e)
      rescue Purge::Busy => e
        raise HttpError.new(409, "#{place.to_s.capitalize}: #{e.message}.", { "retry-after" => "1" })
      rescue Dump::Failed => e
        raise HttpError.new(503, "#{place.to_s.capitalize}: #{e.message}.")
      end

      # @param places [Array<Place>]
      # @param levers [Array<Symbol>] empty for all
      # @param dry_run [Boolean]
      # @return [Array<Outcome>] for each place, a Purge::Result
      # @raise [HttpError] if only one process was called, and it did not answer
      def purge(places, levers, dry_run:)
        options = { levers: levers, dry_run: dry_run }
        return in_turn(places, :purge, :purge, **options) unless places.one?

        [Outcome.new(places.first, call(places.first, :purge, timeout: :purge, **options))]
      end

      # @param profiler [Symbol] a value of PROFILERS
      # @param places [Array<Place>]
      # @param options [Hash] options of the profiler's `start`
      # @return [Array<Outcome>]
      def start_profile(profiler, places, **options)
        in_turn(places, :profile, :"#{profiler}_start", seconds: PROFILE_SECONDS, shared: true, **options)
      end

      # Stops profiles that were started from a page, whichever worker served that page.
      #
      # @param profiler [Symbol] a value of PROFILERS
      # @param places [Array<Place>]
      # @return [Array<Outcome>]
      def stop_profile(profiler, places) = in_turn(places, :profile, :"#{profiler}_stop_shared")

      # Never cached: another worker may have started or stopped the profile a moment ago.
      #
      # @param profiler [Symbol] a value of PROFILERS
      # @param places [Array<Place>]
      # @return [Array<Outcome>] for each place, a Hash as the profiler's Lease.state
      def profile_states(profiler, places)
        places.map do |place|
          Outcome.attempt(place) { call(place, :"#{profiler}_state", timeout: :state).transform_keys(&:to_sym) }
        end
      end

      # @param profiler [Symbol] a value of PROFILERS
      # @param place [Place]
      # @param state [Hash{Symbol => Object}] the place's present state (profile_states)
      # @param form [Array<Object>] what the block makes of the profile, such as :text
      # @return [Object] what the block returns, or without a block the profile, possibly some seconds old
      # @raise [HttpError] if there is none, or the process does not answer
      def kept_profile(profiler, place, state, *form)
        profile = lambda do
          @readings.fetch(:profile, profiler, place.pid, state) { call(place, :"#{profiler}_snapshot") }
        end
        return profile.call unless block_given?

        @readings.fetch(:rendered, profiler, place.pid, state, *form) { yield(profile.call) }
      end

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
        call(place, :dump, timeout: :graph, path: path, format: format, deadline: DUMP_SECONDS)
        File.open(path, "rb")
      rescue SystemCallError => e
        raise HttpError.new(503, "No dump was written: #{e.class.new.message}.")
      ensure
        remove(directory) if directory
      end

      private

      # A process that did not answer in time may still create its file, and remove it, while this method runs. The
      # process does so only once, so the retries end.
      def remove(directory)
        FileUtils.remove_entry(directory)
      rescue Errno::ENOTEMPTY, Errno::ENOENT
        retry if File.exist?(directory)
      end

      def place_of(worker) = Place.new(worker.index, worker.pid)

      def younger(index, all)
        worker = @workers.select { |one| one.index.to_s == index }.max_by { |one| one.booted_at.to_f }
        return place_of(worker) if worker

        raise HttpError.parameter("worker", index, [*@workers.map(&:index).uniq, *(ALL if all)].join(", "))
      end

      # If a process fails, the results of the others are kept; if it does not answer, the others still get their time.
      def in_turn(places, timeout, name, **options)
        seconds = @timeouts[timeout]
        deadline = Clock.now + seconds
        places.map.with_index do |place, index|
          left = [deadline - Clock.now, 0].max
          share = [left / (places.size - index), seconds * SHARE].max.clamp(0, left)
          Outcome.new(place, ask(place, share, name, **options))
        rescue *ERRORS => e
          Outcome.new(place, nil, e.message)
        end
      end

      # Without a socket if the place is this process.
      def ask(place, seconds, name, **options)
        return Calls.run(name, **options) if place.here?
        raise Client::Failed, "timed out before the request was sent" unless seconds.positive?

        Client.new(place.pid, timeout: seconds).call(name, **options)
      end
    end
  end
end
