# frozen_string_literal: true

require_relative "../cluster"
require_relative "readings"

module Memscope
  module Web
    module Pages
      # The malloc profile of one process: the running one, or the last. In a cluster, the process is worker N with
      # worker=N, else the first worker, no matter which worker serves the request.
      #
      # @api private
      class Profile < Page
        # Sampling rates to choose from, in bytes.
        RATES = [19, 21, 17, 15, 12].map { |exponent| 1 << exponent }.freeze
        # Rows of a table.
        LINES = 30
        DONE = { "start" => "started", "stop" => "stopped" }.freeze
        private_constant :LINES, :DONE

        # @return [Array<ClusterCalls::Outcome>, nil] the outcomes of the form that this page answers; nil for a GET
        attr_reader :outcomes

        # @param readings [Readings]
        # @param request [Request]
        # @param form [Hash{String => Array<String>}] the posted form, or the query
        # @param outcomes [Array<ClusterCalls::Outcome>, nil] the outcomes of the posted form
        # @param collected [Purge::Result, nil]
        def initialize(readings, request, form: request.query, outcomes: nil, collected: nil)
          super(readings, request, form: form, collected: collected)
          @outcomes = outcomes
        end

        # @return [Boolean]
        def cluster? = @calls.cluster?

        # @return [ClusterCalls::Place] the process of this page: after a form for all workers, the one that the query
        #   names
        # @raise [HttpError] for an unknown worker
        def place
          all = @outcomes && @form["worker"]&.last == ClusterCalls::ALL
          @place ||= @calls.place(all ? @request.query : @form)
        end

        # @return [Array<ClusterCalls::Outcome>] the states of all workers
        def states = @states ||= @calls.profile_states(@calls.choose(nil))

        # @param outcome [ClusterCalls::Outcome] one of `states`
        # @return [String]
        def status(outcome)
          state = outcome.result or return outcome.reason
          return state[:shared] ? "running" : "running, not started here" if state[:running]

          state[:session].positive? ? "ended" : "none"
        end

        # @return [String, nil] why the profile cannot be shown; nil if it can, or if none was started
        def failure = here&.reason || (@failure if profile.nil?)

        # @return [Boolean]
        def running? = state[:running] == true

        # @return [Boolean] whether any worker runs a profile that this page can stop
        def stoppable? = states.any? { |one| one.done? && one.result[:shared] }

        # @return [Boolean] whether a profile can be started in any worker
        def startable? = states.any? { |one| one.done? && !one.result[:running] }

        # @return [Boolean] whether jemalloc's profiler is ready
        def jemalloc? = state[:jemalloc] == true

        # @return [Memscope::Profile]
        # @raise [HttpError] if none was started
        def reading = kept.reading

        # @return [Memscope::Profile, nil]
        def profile
          reading if state[:session]&.positive?
        rescue HttpError => e
          @failure = e.message
          nil
        end

        # @return [Array<Memscope::Profile::Entry>] lines with live memory, the most first
        def lines = live(:line).first(LINES)

        # @return [Array<Memscope::Profile::Entry>] tags with live memory, the most first; empty without tags
        def tags
          entries = live(:tag)
          entries.size > 1 ? entries.first(LINES) : []
        end

        # @return [String] the profile; if the page answers a form in a cluster, the form's outcomes
        def json
          return body(:json, &:to_json) unless @outcomes && cluster?

          JSON.generate(do: @form["do"].last, workers: @outcomes.map do |outcome|
            { **outcome.place.to_h, done: outcome.done?, reason: outcome.reason }
          end)
        end

        # @return [String] the same as `json`, as text
        def text
          return body(:text, &:to_s) unless @outcomes && cluster?

          "#{@outcomes.map { |outcome| "#{outcome.place}: #{outcome.reason || done}" }.join("\n")}\n"
        end

        # @return [String]
        # @raise [HttpError] if none was started
        def flame_graph
          body(:flame_graph) { |profile| profile.to_html(back: ["../profile", place.query].compact.join("?")) }
        end

        # @param form [Symbol] key of the body, such as :json
        # @yieldparam profile [Memscope::Profile]
        # @return [String] what the block renders, once for each profile that is read
        # @raise [HttpError] if none was started
        def body(form, &) = kept.body(form, &)

        # @return [String] what the form did in each worker: "started" or "stopped"
        def done = DONE.fetch(@form["do"].last)

        private

        def live(key) = reading.by(key).select { |entry| entry.live_bytes.positive? }

        def here = states.find { |one| one.place.pid == place.pid }

        # Empty if the process of this page does not answer.
        def state = here&.result || {}

        def kept = @kept ||= @calls.kept_profile(place, state.empty? ? @calls.profile_state(place) : state)
      end
    end
  end
end
