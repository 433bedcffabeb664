# frozen_string_literal: true

module Memscope
  module Web
    module Pages
      # The malloc profile of one process, or its profile of objects (kind=objects): the running one, or the last. In a
      # cluster, the process is worker N with worker=N, else the first worker, no matter which worker serves the
      # request.
      # @api private
      class Profile < Page
        # Headings by grouping. The first grouping is shown unless the query chooses another (by=caller).
        GROUPINGS = { line: "Line", caller: "Line of the application", method: "Method", library: "Library" }.freeze
        OBJECT_GROUPINGS = { **GROUPINGS, class: "Class" }.freeze
        LINES = 30

        # @return [String] a key of Processes::PROFILERS
        def kind = Processes::PROFILERS.key(profiler)

        def objects? = kind == "objects"

        def groupings = objects? ? OBJECT_GROUPINGS : GROUPINGS

        # @return [Processes::Place] the process of this page: after a form for all workers, the process that the
        #   query names
        def place
          all = @outcomes && form["worker"]&.last == Processes::ALL
          @place ||= @processes.place(all ? @request.query : form)
        end

        # @return [Array<Processes::Outcome>] the states of all workers
        def states = @states ||= @processes.profile_states(profiler, @processes.choose(nil))

        def status(outcome)
          state = outcome.result or return outcome.reason
          return state[:shared] ? "running" : "running, not started here" if state[:running]

          state[:session].positive? ? "ended" : "none"
        end

        # @return [String, nil] why the profile cannot be shown; nil if it can, or if none was started
        def failure = here&.reason || (@failure if profile.nil?)

        def running? = state[:running] == true

        # @return [Boolean] whether any worker runs a profile that this page can stop
        def stoppable? = states.any? { |one| one.done? && one.result[:shared] }

        # @return [Boolean] whether a profile can be started in any worker
        def startable? = states.any? { |one| one.done? && !one.result[:running] }

        def jemalloc? = state[:jemalloc] == true

        # @return [Memscope::Profile] if the query names a tag (tag=), only the part of that tag
        def reading = @reading ||= kept.then { |profile| tag ? profile.tagged(tag) : profile }

        def tag = @request.query["tag"]&.last

        # @return [Memscope::Tags, nil] nil if the process has no tags, or does not answer
        def runs
          @runs ||= read(:tags).then { |tags| tags if tags.known? }
        rescue HttpError
          nil
        end

        # The tables of the profile. Those of one tag are not cached.
        def tables(&) = tag ? yield : kept(:tables, by, &)

        def profile
          reading if state[:session]&.positive?
        rescue HttpError => e
          @failure = e.message
          nil
        end

        # @return [Symbol] a key of `groupings`
        def by = choice("by", groupings.keys, :line)

        def table = @table ||= Report::ProfilePage.new(reading, by: by, limit: LINES, width: Report::Page::MAX_WIDTH)

        # @return [Report::ProfilePage, nil] by tag; nil without tags
        def tags
          return if tag || reading.by(:tag).count { |entry| entry.live_bytes.positive? } < 2

          Report::ProfilePage.new(reading, by: :tag, limit: LINES)
        end

        # @return [String] the profile; if the page answers a form in a cluster, the form's outcomes
        def to_json(*)
          return kept(:json, &:to_json) unless @outcomes && @processes.cluster?

          JSON.generate(do: form["do"].last, workers: @outcomes.map(&:summary))
        end

        def to_s(**)
          return kept(:text) { |profile| profile.to_s(unicode: true) } unless @outcomes && @processes.cluster?

          "#{@outcomes.map { |outcome| "#{outcome.place}: #{outcome.reason || done}" }.join("\n")}\n"
        end

        def flame_graph
          query = URI.encode_www_form({ worker: place.index, kind: (kind if objects?) }.compact)
          kept(:flame_graph) { |profile| profile.to_html(back: "../profile#{"?#{query}" unless query.empty?}") }
        end

        # @return [String] the form's effect in each worker: "started" or "stopped"
        def done = { "start" => "started", "stop" => "stopped" }.fetch(form["do"].last)

        private

        # A form may be posted to a URL whose query names the kind.
        def profiler
          profilers = Processes::PROFILERS
          given = (form["kind"] || @request.query["kind"])&.last || "malloc"
          profilers.fetch(HttpError.choose("kind", given, profilers.keys))
        end

        def here = states.find { |one| one.place.pid == place.pid }

        # Empty if the process of this page does not answer.
        def state = here&.result || {}

        # The profile or, with a block, the block's rendering of it, made once for each profile that is read.
        def kept(*form, &)
          raise HttpError.new(502, here.reason) if here&.reason

          @processes.kept_profile(profiler, place, state, *form, &)
        end
      end
    end
  end
end
