# frozen_string_literal: true

require_relative "../../report"

module Memscope
  module Web
    module Pages
      # What a purge of several workers returned: the answer to its POST.
      #
      # @api private
      class ReturnedByWorkers
        # @return [Purge::WorkerResults]
        attr_reader :reading

        # @param reading [Purge::WorkerResults]
        def initialize(reading)
          @reading = reading
        end

        # @return [String]
        def json = reading.to_json

        # @return [String]
        def text = Memscope::Report.render(reading, unicode: true)

        # @return [String]
        def title = "Returned"

        # @return [Symbol]
        def template = :returned_by_workers

        # @return [Array<Purge::WorkerResults::Part>] that purged
        def purged = reading.workers.select(&:result)
      end
    end
  end
end
