# frozen_string_literal: true

require_relative "../../malloc_profile"
require_relative "../response"

module Memscope
  module Web
    module Actions
      # POST /profile.
      #
      # @api private
      module Profile
        NAMES = %w[start stop].freeze
        private_constant :NAMES

        class << self
          # @param form [Hash{String => Array<String>}] do: start or stop; backend, rate; worker: the index of one, or
          #   "all", the default
          # @param calls [ClusterCalls]
          # @return [Array<ClusterCalls::Outcome>]
          # @raise [HttpError] for wrong parameters, or where every process failed
          def run(form, calls)
            action = form["do"]&.last
            raise HttpError.parameter("do", action, NAMES.join(", ")) unless NAMES.include?(action)

            options = options(form) if action == "start"
            places = calls.choose(form["worker"]&.last)
            outcomes = options ? calls.start_profile(places, **options) : calls.stop_profile(places)
            return outcomes if outcomes.any?(&:done?)

            raise HttpError.new(409, sentence(outcomes))
          end

          private

          # All are checked before anything is started anywhere.
          def options(form)
            given = form["backend"]&.last || "auto"
            backend = MallocProfile::BACKENDS.find { |name| name.name == given }
            raise HttpError.parameter("backend", given, MallocProfile::BACKENDS.join(", ")) unless backend

            given = form["rate"]&.last || MallocProfile::RATE.to_s
            rate = Integer(given, 10, exception: false) || given[0, 20]
            { rate: rate, backend: backend }.tap { |options| MallocProfile.check(**options) }
          rescue ArgumentError => e
            raise HttpError.new(400, "#{e.message[/rate: .*/] || e.message}.")
          end

          def sentence(outcomes)
            return "#{outcomes.first.reason}." unless outcomes.first.place.index

            outcomes.map { |outcome| "#{outcome.place.to_s.capitalize}: #{outcome.reason}." }.join(" ")
          end
        end
      end
    end
  end
end
