# frozen_string_literal: true

require_relative "../malloc_profile"
require_relative "../purge"
require_relative "pages/readings"
require_relative "response"

module Memscope
  module Web
    # The requests that change processes: POST /purge and POST /profile. Both take the parameter worker: a worker's
    # index, or "all" (the default).
    #
    # @api private
    module Actions
      ALL = "all"
      LEVERS = Purge::LEVERS.map(&:name).freeze
      PROFILE = %w[start stop].freeze
      private_constant :ALL, :LEVERS, :PROFILE

      class << self
        # @param form [Hash{String => Array<String>}] lever: names, or "all"; dry_run: "1" to predict only; pid: the
        #   process that the page with the button showed
        # @param calls [ClusterCalls]
        # @return [Pages::Returned, Pages::ReturnedByWorkers]
        # @raise [HttpError]
        def purge(form, calls)
          levers = levers(form.fetch("lever", []))
          worker = form["worker"]&.last
          result = calls.purge(levers, dry_run: form["dry_run"]&.last == "1", worker: worker)
          return Pages::ReturnedByWorkers.new(result) if result.is_a?(Purge::WorkerResults)

          Pages::Returned.new(result, (form["pid"]&.last.to_s[/\A\d{1,10}\z/]&.to_i unless worker))
        rescue ArgumentError => e
          raise HttpError.new(400, "#{e.message.delete_prefix('Memscope.purge: ')}.")
        rescue Purge::Busy => e
          raise HttpError.new(409, "#{e.message.sub(/\A./, &:upcase)}.", { "retry-after" => "1" })
        end

        # @param form [Hash{String => Array<String>}] do: start or stop; backend, rate
        # @param calls [ClusterCalls]
        # @return [Array<ClusterCalls::Outcome>]
        # @raise [HttpError] for wrong parameters, or if every process failed
        def profile(form, calls)
          action = form["do"]&.last
          raise HttpError.parameter("do", action, PROFILE.join(", ")) unless PROFILE.include?(action)

          options = profile_options(form) if action == "start"
          places = calls.choose(form["worker"]&.last)
          outcomes = options ? calls.start_profile(places, **options) : calls.stop_profile(places)
          return outcomes if outcomes.any?(&:done?)

          raise HttpError.new(409, failure(outcomes))
        end

        private

        # @return [Array<Symbol>] empty for all levers that this process has
        def levers(given)
          unknown = given - LEVERS - [ALL]
          return given.include?(ALL) ? [] : given.map(&:to_sym) if given.any? && unknown.empty?

          raise HttpError.parameter("lever", unknown.first, [*LEVERS, ALL].join(", "))
        end

        # Checks every option before a profile starts in any process.
        def profile_options(form)
          given = form["backend"]&.last || "auto"
          backend = MallocProfile::BACKENDS.find { |name| name.name == given }
          raise HttpError.parameter("backend", given, MallocProfile::BACKENDS.join(", ")) unless backend

          given = form["rate"]&.last || MallocProfile::RATE.to_s
          rate = Integer(given, 10, exception: false) || given[0, 20]
          { rate: rate, backend: backend }.tap { |options| MallocProfile.check(**options) }
        rescue ArgumentError => e
          raise HttpError.new(400, "#{e.message[/rate: .*/] || e.message}.")
        end

        def failure(outcomes)
          return "#{outcomes.first.reason}." unless outcomes.first.place.index

          outcomes.map { |outcome| "#{outcome.place.to_s.capitalize}: #{outcome.reason}." }.join(" ")
        end
      end
    end
  end
end
