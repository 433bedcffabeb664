# frozen_string_literal: true

module Memscope
  module Web
    # GET /debug/pprof/heap, as in Go: the running malloc profile for Pyroscope, Parca and `go tool pprof`; and GET
    # /debug/pprof/objects: the running profile of objects. In a cluster, all workers' profiles are merged, or worker=N
    # chooses one. Go's text format (debug=1) is refused: it has addresses, which no other program can resolve to Ruby
    # frames. A difference (seconds=N) is refused too: it would occupy a thread of the server for that long.
    # @api private
    module Pprof
      # For each path, a value of Processes::PROFILERS.
      PATHS = { "/debug/pprof/heap" => :malloc_profile, "/debug/pprof/objects" => :object_profile }.freeze
      # The allowed values of Go's parameters.
      ALLOWED = { "debug" => "0; for readable text, see /profile.txt",
                  "seconds" => "none; compare two profiles (go tool pprof -diff_base), " \
                               "or run memscope profile --seconds" }.freeze
      NONE = [nil, "", "0"].freeze

      class << self
        def of(request, processes)
          query = request.query.transform_values(&:last)
          name, allowed = ALLOWED.find { |parameter, _allowed| !NONE.include?(query[parameter]) }
          raise HttpError.parameter(name, query[name], allowed) if name

          profiler = PATHS.fetch(request.path)
          states = running(profiler, processes.profile_states(profiler, processes.choose(query["worker"])))
          processes.fetch(:pprof, profiler, processes.cluster?, states) { encoded(profiler, processes, states) }
        end

        private

        # The outcomes with a running profile, and the failed ones.
        def running(profiler, states)
          running = states.reject { |state| state.done? && !state.result[:running] }
          return running if running.any?(&:done?)

          none = "No #{profiler.name.tr('_', ' ')} runs in #{states.map(&:place).join(', ')}. Start one on the page " \
                 "/profile, or with Memscope::#{Calls::PROFILERS.fetch(profiler)}.start."
          raise HttpError.new(running.any? ? 502 : 404, [none, *running.map(&:reason)].join(" "))
        end

        # A worker that failed becomes a comment in the profile of the others.
        def encoded(profiler, processes, states)
          outcomes = states.map do |one|
            next one unless one.done?

            Processes::Outcome.attempt(one.place) { processes.kept_profile(profiler, one.place, one.result) }
          end
          found, missing = outcomes.partition(&:done?)
          raise HttpError.new(502, missing.map(&:reason).join(" ")) if found.empty?

          parts = found.map { |outcome| [outcome.result, processes.cluster? ? outcome.place.labels : {}] }
          Memscope::Profile::Pprof.new(parts, comments: missing.map { |one| "missing: #{one.reason}" }).to_s
        end
      end
    end
  end
end
