# frozen_string_literal: true

require_relative "../client"
require_relative "../malloc_profile"
require_relative "../profile"
require_relative "refusal"
require_relative "relay"

module Memscope
  module Web
    # The malloc profiles of a cluster's workers, each read, started and stopped over its own socket; where there is no
    # cluster, or nothing is known of it, the one of this process.
    #
    # @api private
    class Profiling
      # Seconds after which a profile that was started here ends by itself.
      SECONDS = 3600
      # Seconds that all workers together have to start or to stop, and one to tell its profile, or whether it has one.
      PATIENCE = { act: 10.0, snapshot: 20.0, state: 2.0 }.freeze
      ERRORS = [Client::Unreachable, Client::Failed, MallocProfile::Unavailable, ArgumentError].freeze
      private_constant :SECONDS, :PATIENCE, :ERRORS

      # A process that can be profiled.
      Place = Struct.new(:index, :pid) do
        # @return [Boolean]
        def here? = pid == Process.pid

        # @return [Hash{String => String}] of samples that lie beside those of other processes
        def labels = { "worker" => index.to_s, "pid" => pid.to_s }

        # @return [String]
        def to_s = index ? "worker #{index} (pid #{pid})" : "this process (pid #{pid})"
      end

      # What came of starting or stopping in one of them.
      Outcome = Struct.new(:place, :reason) do
        # @return [Boolean]
        def done? = reason.nil?
      end

      class << self
        # @param pid [Integer] of this process, or of another that listens
        # @return [Profile] the one that runs, or the last
        def snapshot(pid) = pid == Process.pid ? MallocProfile.snapshot : ask(pid, :snapshot)

        # @param pid [Integer]
        # @return [Hash{Symbol => Object}] as MallocProfile::Lease.state
        def state(pid) = pid == Process.pid ? MallocProfile::Lease.state : ask(pid, :state).transform_keys(&:to_sym)

        private

        def ask(pid, what) = Client.new(pid, timeout: PATIENCE.fetch(what)).call(:"malloc_profile_#{what}")
      end

      # @param readings [Readings]
      # @param relay [Relay]
      def initialize(readings, relay = Relay.new(Relay.workers { readings.fetch(:workers) }, seconds: PATIENCE[:act]))
        @readings = readings
        @relay = relay
      end

      # @return [Boolean] whether there is more than this process to choose from
      def cluster? = @relay.choose(nil).any?

      # @param given [String, nil] the index of a worker, or "all"; nil for all
      # @param all [Boolean] whether "all" will do where there are several
      # @return [Array<Place>] at least one, by index
      # @raise [Refusal] for another worker
      def choose(given, all: true)
        workers = @relay.choose(given, all: all)
        return [Place.new(nil, Process.pid)] if workers.empty?

        workers.map { |worker| Place.new(worker.index, worker.pid) }
      end

      # As it is now: another worker may have started or stopped it a moment ago.
      #
      # @param place [Place]
      # @return [Hash{Symbol => Object}] as MallocProfile::Lease.state
      # @raise [Refusal] where it does not answer
      def state(place) = answered(place) { self.class.state(place.pid) }

      # @param place [Place]
      # @param state [Hash{Symbol => Object}] its, now
      # @return [Profile] of this state, some moments old
      # @raise [Refusal] where there is none, or it does not answer
      def read(place, state)
        raise none(place) if state[:session].zero?

        answered(place) { @readings.fetch(:profile, place.pid, state) { self.class.snapshot(place.pid) } }
      end

      # @param place [Place]
      # @return [Profile] as it is now
      # @raise [Refusal] likewise
      def snapshot(place) = answered(place) { self.class.snapshot(place.pid) }

      # @param places [Array<Place>]
      # @param options [Hash] of MallocProfile.start
      # @return [Array<Outcome>]
      def start(places, **options)
        options = { seconds: SECONDS, shared: true, **options }
        in_turn(places, :malloc_profile_start, **options) { MallocProfile::Lease.start(**options) }
      end

      # Only what was started here, or by the same page of another worker.
      #
      # @param places [Array<Place>]
      # @return [Array<Outcome>]
      def stop(places) = in_turn(places, :malloc_profile_stop_shared) { MallocProfile::Lease.stop_shared }

      private

      # What one fails by does not hide what came of the others.
      def in_turn(places, call, **options)
        @relay.in_turn(places) do |place, seconds|
          place.here? ? yield : @relay.call(place, seconds, call, **options)
          Outcome.new(place)
        rescue *ERRORS => e
          Outcome.new(place, e.message)
        end
      end

      def answered(place)
        yield
      rescue MallocProfile::Unavailable
        raise none(place)
      rescue Client::Unreachable, Client::Failed => e
        raise Refusal.new(502, "#{place.to_s.capitalize} gave nothing back: #{e.message}.")
      end

      def none(place) = Refusal.new(404, "No malloc profile was started in #{place}.")
    end
  end
end
