# frozen_string_literal: true

module Memscope
  module Web
    # GET /debug/pprof/heap, as in Go: the running malloc profile for Pyroscope, Parca and `go tool pprof`; and GET
    # /debug/pprof/objects: the running profile of objects. With seconds=N, both serve the change in the next N seconds.
    # In a cluster, all workers' profiles are merged, or worker=N chooses one. Go's text format (debug=1) is refused: it
    # has addresses, which no other program can resolve to Ruby frames.
    #
    # @api private
    class HeapProfile
      # The longest delta, in seconds.
      MAX_SECONDS = 300
      private_constant :MAX_SECONDS

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
      # @return [Array(Integer, String, String, Hash)] status, media type or format, body and headers
      def response(request, readings)
        worker, seconds = parameters(request)
        calls = ClusterCalls.new(readings)
        states = running(calls.profile_states(@profiler, calls.choose(worker)))
        body = if seconds && request.verb != "HEAD"
                 delta(calls, states, seconds)
               else
                 readings.fetch(:pprof, @profiler, calls.cluster?, states) { whole(calls, states) }
               end
        [200, "application/octet-stream", body, @headers]
      rescue HttpError => e
        [e.status, :text, "#{e.message}\n", e.headers]
      end

      private

      # @return [Array(String, Integer)] the worker, and the seconds of a delta; each nil if it was not given
      def parameters(request)
        worker, seconds, debug = request.query.values_at("worker", "seconds", "debug").map { |values| values&.last }
        unless [nil, "", "0"].include?(debug)
          raise HttpError.parameter("debug", debug, "0; for readable text, see /profile.txt")
        end

        return [worker, nil] unless seconds
        return [worker, seconds.to_i] if seconds.match?(/\A\d{1,3}\z/) && seconds.to_i.between?(1, MAX_SECONDS)

        raise HttpError.parameter("seconds", seconds, "a whole number from 1 to #{MAX_SECONDS}")
      end

      # @return [Array<ClusterCalls::Outcome>] the outcomes with a running profile, and the failed ones
      def running(states)
        running = states.reject { |state| state.done? && !state.result[:running] }
        return running if running.any?(&:done?)

        none = "No #{@kind} profile runs in #{states.map(&:place).join(', ')}. Start " \
               "one on the page /profile, or with " \
               "Memscope::#{Calls::PROFILERS.fetch(@profiler)}.start."
        raise HttpError.new(running.any? ? 502 : 404, [none, *running.map(&:reason)].join(" "))
      end

      def whole(calls, states)
        encoded(calls, states.map do |one|
          one.follow { |place, state| calls.kept_profile(@profiler, place, state) }
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
            one.follow { |place, profile| calls.profile(@profiler, place).growth_since(profile) }
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
        Memscope::Profile::Formats::Pprof.new(parts, comments: missing.map { |one| "missing: #{one.reason}" }).to_s
      end
    end
  end
end
