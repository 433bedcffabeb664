# frozen_string_literal: true

module Memscope
  module Web
    # GET /debug/pprof/heap, as in Go: the running malloc profile for Pyroscope, Parca and `go tool pprof`; and GET
    # /debug/pprof/objects: the running profile of objects. In a cluster, all workers' profiles are merged, or worker=N
    # chooses one. Go's text format (debug=1) is refused: it has addresses, which no other program can resolve to Ruby
    # frames. A difference (seconds=N) is refused too: it would occupy a thread of the server for that long.
    #
    # @api private
    class HeapProfile
      # What is allowed of Go's parameters.
      ALLOWED = { "debug" => "0; for readable text, see /profile.txt",
                  "seconds" => "none; compare two profiles (go tool pprof -diff_base), " \
                               "or run memscope profile --seconds" }.freeze
      NONE = [nil, "", "0"].freeze
      private_constant :ALLOWED, :NONE

      # @param kind [String] a key of ClusterCalls::PROFILERS
      # @param name [String] of the file
      def initialize(kind, name)
        @profiler = ClusterCalls::PROFILERS.fetch(kind)
        @kind = kind.delete_suffix("s")
        @headers = { "content-disposition" => "attachment; filename=\"#{name}.pb.gz\"" }.freeze
      end

      # Errors are sentences in plain text: the client is not a browser.
      #
      # @param request [Request]
      # @param readings [Readings]
      # @return [Array(Integer, String, String, Hash)] status, media type or format, body and headers
      def response(request, readings)
        query = request.query.transform_values(&:last)
        check(query)
        calls = ClusterCalls.new(readings)
        states = running(calls.profile_states(@profiler, calls.choose(query["worker"])))
        body = readings.fetch(:pprof, @profiler, calls.cluster?, states) { encoded(calls, states) }
        [200, "application/octet-stream", body, @headers]
      rescue HttpError => e
        [e.status, :text, "#{e.message}\n", e.headers]
      end

      private

      def check(query)
        name, allowed = ALLOWED.find { |parameter, _allowed| !NONE.include?(query[parameter]) }
        raise HttpError.parameter(name, query[name], allowed) if name
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

      # A worker that failed becomes a comment in the profile of the others.
      def encoded(calls, states)
        outcomes = states.map do |one|
          next one unless one.done?

          ClusterCalls::Outcome.attempt(one.place) { calls.kept_profile(@profiler, one.place, one.result) }
        end
        found, missing = outcomes.partition(&:done?)
        raise HttpError.new(502, missing.map(&:reason).join(" ")) if found.empty?

        parts = found.map { |outcome| [outcome.result, calls.cluster? ? outcome.place.labels : {}] }
        Memscope::Profile::Pprof.new(parts, comments: missing.map { |one| "missing: #{one.reason}" }).to_s
      end
    end
  end
end
