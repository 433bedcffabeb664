# frozen_string_literal: true

module Memscope
  module Web
    module Pages
      # The parts of a page around the chart of the process's history.
      # @api private
      module OverTime
        # For each range: seconds of a bucket of the history, and the range's name.
        RANGES = { "1h" => [10, "1 hour"], "12h" => [60, "12 hours"], "7d" => [600, "7 days"] }.freeze

        # @return [String] a key of RANGES
        # @raise [HttpError]
        def range = choice("range", RANGES.keys, RANGES.keys.first)

        # @return [String] the verdict on the process
        def verdict_sentence = read(:verdict).sentence
      end

      # The memory of the process over time: as a chart, and each series as a line of a table. JSON is the whole
      # history. With range=1h, 12h or 7d, only the buckets of that range.
      # @api private
      class History < Page
        include OverTime

        READINGS = %i[history].freeze

        # @return [Memscope::History]
        def history = read(:history)

        def to_json(*)
          return super unless @request.query.key?("range")

          body = history.to_h
          curves = body[:curves].map { |curve| { **curve, rings: curve[:rings].select { |ring| shown?(ring) } } }
          JSON.generate({ **body, curves: curves })
        end

        # @return [Integer, nil] seconds between two samples of the series
        def spacing(series) = (history[series].spacing_seconds if history.series.include?(series))

        private

        def shown?(ring) = ring[:step_seconds] == RANGES.fetch(range).first
      end
    end
  end
end
