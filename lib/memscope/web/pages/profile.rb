# frozen_string_literal: true

require_relative "../profiling"
require_relative "../refusal"
require_relative "page"

module Memscope
  module Web
    module Pages
      # The malloc profile of one process: the one that runs, or the last. In a cluster of the worker that `worker=`
      # names, else of the first, whichever of them answers.
      #
      # @api private
      class Profile < Page
        shows "Profile", :profile

        # What can be chosen, in bytes.
        RATES = [19, 21, 17, 15, 12].map { |exponent| 1 << exponent }.freeze
        # As many lines are shown.
        LINES = 30
        DONE = { "start" => "started", "stop" => "stopped" }.freeze
        private_constant :DONE

        # A worker beside others.
        Row = Struct.new(:place, :state, :why)

        class << self
          # @param form [Hash{String => Array<String>}] do: start or stop; backend, rate; worker: the index of one, or
          #   "all", which it is without
          # @param profiling [Profiling]
          # @return [Array<Profiling::Outcome>] of each that was reached
          # @raise [Refusal] for what cannot be asked, and where nothing was done anywhere
          def act(form, profiling)
            action = form["do"]&.last
            raise Refusal.new(400, "do: given #{action.to_s[0, 20].inspect}, allowed: start, stop.") unless
              DONE.key?(action)

            options = options(form) if action == "start"
            places = profiling.choose(form["worker"]&.last)
            outcomes = options ? profiling.start(places, **options) : profiling.stop(places)
            return outcomes if outcomes.any?(&:done?)

            raise Refusal.new(409, sentence(outcomes))
          end

          # @return [String] what was done to a profile
          def done(form) = DONE.fetch(form["do"].last)

          private

          # Nothing is started anywhere by a form that is wrong.
          def options(form)
            given = form["backend"]&.last || "auto"
            backend = MallocProfile::BACKENDS.find { |name| name.name == given }
            allowed = MallocProfile::BACKENDS.join(", ")
            raise Refusal.new(400, "backend: given #{given[0, 20].inspect}, allowed: #{allowed}.") unless backend

            given = form["rate"]&.last || MallocProfile::RATE.to_s
            rate = Integer(given, 10, exception: false) || given[0, 20]
            { rate: rate, backend: backend }.tap { |options| MallocProfile.check(**options) }
          rescue ArgumentError => e
            raise Refusal.new(400, "#{e.message[/rate: .*/] || e.message}.")
          end

          def sentence(outcomes)
            return "#{outcomes.first.reason}." unless outcomes.first.place.index

            outcomes.map { |outcome| "#{outcome.place.to_s.capitalize}: #{outcome.reason}." }.join(" ")
          end
        end

        # @return [Array<Profiling::Outcome>, nil] where this answers a form
        attr_reader :outcomes

        # @param readings [Readings]
        # @param request [Request]
        # @param form [Hash{String => Array<String>}] that was posted
        # @param outcomes [Array<Profiling::Outcome>, nil] and what came of it
        def initialize(readings, request, form: request.query, outcomes: nil)
          super(readings, request)
          @form = form
          @outcomes = outcomes
          @profiling = Profiling.new(readings)
        end

        # @return [Boolean] whether there are several to choose from
        def cluster? = @profiling.cluster?

        # @return [Profiling::Place] that this page is of
        # @raise [Refusal] where there is no such worker
        def place
          @place ||= begin
            given = @form["worker"]&.last
            @profiling.choose(@outcomes && given == "all" ? nil : given, all: false).first
          end
        end

        # @return [Array<Row>] all workers, with the state of each, or why it is not known
        def rows
          @rows ||= @profiling.choose(nil).map do |one|
            Row.new(one, @profiling.state(one))
          rescue Refusal => e
            Row.new(one, nil, e.message)
          end
        end

        # @return [Hash{Symbol => Object}] of the page's process; nothing where it does not answer
        def state = rows.find { |row| row.place.pid == place.pid }&.state || {}

        # @return [String, nil] why there is no profile to show, but that none was started
        def failure
          row = rows.find { |one| one.place.pid == place.pid }
          row&.why || (@failure if profile.nil?)
        end

        # @return [Boolean]
        def running? = state[:running] == true

        # @return [Boolean] whether there is one that can be stopped here
        def stoppable? = rows.any? { |row| row.state && row.state[:shared] }

        # @return [Boolean] whether there is one where a profile can be started
        def startable? = rows.any? { |row| row.state && !row.state[:running] }

        # @return [Memscope::Profile]
        # @raise [Refusal] where none was started
        def reading = @profiling.read(place, state.empty? ? @profiling.state(place) : state)

        # @return [String] in a cluster the answer to a form is what came of it
        def json
          return super unless @outcomes && cluster?

          JSON.generate(do: @form["do"].last, workers: @outcomes.map do |outcome|
            { **outcome.place.to_h, done: outcome.done?, reason: outcome.reason }
          end)
        end

        # @return [String] likewise
        def text
          return super unless @outcomes && cluster?

          "#{@outcomes.map { |outcome| "#{outcome.place}: #{outcome.reason || done}" }.join("\n")}\n"
        end

        # @return [String]
        def done = self.class.done(@form)

        # @return [Memscope::Profile, nil]
        def profile
          return unless state[:session]&.positive?

          @profile ||= reading
        rescue Refusal => e
          @failure = e.message
          nil
        end

        # @return [Array<Memscope::Profile::Entry>] of which something lives
        def entries = @entries ||= profile.by(:line).select { |entry| entry.live_bytes.positive? }.first(LINES)

        # @return [Array<Memscope::Profile::Entry>] none where nothing was tagged
        def tags
          entries = profile.by(:tag).select { |entry| entry.live_bytes.positive? }
          entries.size > 1 ? entries.first(LINES) : []
        end

        # @return [Boolean] whether what is there samples without more ado
        def jemalloc? = state[:jemalloc] == true
      end
    end
  end
end
