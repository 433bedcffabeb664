# frozen_string_literal: true

module Memscope
  module Web
    # What the five pages show, each as HTML, JSON and text.
    #
    # @api private
    module Pages
      # A page: HTML by the template with the page's own name, JSON and text by its readings.
      #
      # @api private
      class Page
        # @return [ClusterCalls]
        attr_reader :calls
        # @return [Purge::Result, nil] of the full GC that the form asked for before this page is read
        attr_reader :collected
        # @return [Array<ClusterCalls::Outcome>, nil] what became of the form that this page answers, in each process
        attr_reader :outcomes

        # @param readings [Readings]
        # @param request [Request]
        # @param form [Hash{String => Array<String>}] the posted form, or the query
        # @param collected [Purge::Result, nil]
        # @param outcomes [Array<ClusterCalls::Outcome>, nil]
        # @param taken [Hash{Symbol => Array<Reading>}] what the form has taken, by name
        def initialize(readings, request, form: request.query, collected: nil, outcomes: nil, taken: {})
          @readings = readings
          @request = request
          @form = form
          @collected = collected
          @outcomes = outcomes
          @taken = taken
          @calls = ClusterCalls.new(readings)
        end

        # @return [Symbol] the template in views/
        def template = self.class.name[/\w+\z/].downcase.to_sym

        # @return [String]
        def title = template.name.capitalize

        # @return [ClusterCalls::Place] the process that the page shows
        # @raise [HttpError] for an unknown worker
        def place = @place ||= @calls.place(@form)

        # @param name [Symbol] of a method of the page
        # @return [Reading]
        # @raise [HttpError] if there is none
        def data(name)
          public_send(name) or
            raise HttpError.new(404, "No #{name} was taken in #{place}. Take one on " \
                                     "the page /objects, or with memscope #{name} " \
                                     "--pid #{place.pid}.")
        end

        # @return [String] the page's only reading, or an object of them by name
        def json = names.one? ? public_send(names.first).to_json : names.to_h { |one| [one, public_send(one)] }.to_json

        # @return [String]
        def text = names.filter_map { |name| public_send(name)&.to_s(unicode: true) }.join("\n\n")

        private

        # The page's readings.
        def names = self.class::READINGS

        # @raise [HttpError] if the process does not answer
        def read(kind, **options) = @calls.read(place, kind, **options)

        # @param allowed [Array<Object>]
        # @return [Object] the allowed value that the query names
        # @raise [HttpError] if it is none of those allowed
        def choice(parameter, allowed, default)
          HttpError.choose(parameter, @request.query[parameter]&.last || default, allowed)
        end
      end

      # What a purge returned in one process, or in several workers.
      #
      # @api private
      Returned = Struct.new(:outcomes) do
        # @return [Symbol] the template in views/
        def template = :returned

        # @return [String]
        def title = "Returned"

        # @return [Purge::Result, nil] of the only process; nil if several workers were called
        def result = (outcomes.first.result if outcomes.one?)

        # @return [Boolean] whether it is only predicted
        def dry_run? = outcomes.filter_map(&:result).any?(&:dry_run?)

        # @return [Integer, nil] fall of RSS: a page that several workers shared counts once for each. nil for a dry
        #   run, and if that of one worker is unknown
        def returned_bytes = sum(&:returned_bytes)

        # @return [Integer, nil] what the machine gained, or nil as above
        def returned_private_bytes = sum(&:returned_private_bytes)

        # @return [String] the result, or the sum and the outcomes by worker
        def json
          return result.to_json if result

          JSON.generate(returned_bytes: returned_bytes, returned_private_bytes: returned_private_bytes,
                        workers: outcomes.map { |one| { **one.summary, result: one.result } })
        end

        # @return [String] the same as `json`, as text
        def text
          return result.to_s(unicode: true) if result

          texts = outcomes.map { |one| one.reason || one.result.to_s(unicode: true) }
          outcomes.zip(texts).map { |one, text| "#{one.place}\n#{text}\n" }.join("\n")
        end

        private

        def sum(&)
          known = outcomes.filter_map(&:result).map(&)
          known.sum unless known.empty? || known.include?(nil)
        end
      end
    end
  end
end
