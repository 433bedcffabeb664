# frozen_string_literal: true

module Memscope
  module Web
    module Pages
      # What pages show around the chart of the process's history.
      #
      # @api private
      module OverTime
        # For each range: seconds of a bucket of the history, seconds of a line of the table, and the range's name.
        RANGES = { "1h" => [10, 600, "1 hour"], "12h" => [60, 3600, "12 hours"],
                   "7d" => [600, 43_200, "7 days"] }.freeze

        # @return [String] a key of RANGES
        # @raise [HttpError]
        def range = choice("range", RANGES.keys, RANGES.keys.first)

        # @return [String] the verdict on the process
        def verdict_sentence = read(:verdict).sentence
      end

      # The memory of the process over time: as a chart and as a table. JSON is the whole history; with range=1h, 12h or
      # 7d, only the buckets of that range.
      #
      # @api private
      class History < Page
        include OverTime

        READINGS = %i[history].freeze

        # A line of the table: the time at its end, and the last sample of each series until then.
        Line = Struct.new(:at, :bytes)

        # @return [Memscope::History]
        def history = read(:history)

        # @return [String]
        def json
          return super unless @request.query.key?("range")

          body = history.to_h
          curves = body[:curves].map { |curve| { **curve, rings: curve[:rings].select { |ring| shown?(ring) } } }
          JSON.generate({ **body, curves: curves })
        end

        # @return [Array<Symbol>] the series of the table: the RSS, and the rows that have memory
        def columns
          @columns ||= [:rss, *Memscope::History::ROWS].select do |id|
            history.series.include?(id) && points(id).any? { |point| point.last&.positive? }
          end
        end

        # @return [Array<Line>] the newest first
        def lines
          parts = columns.map { |id| points(id).group_by { |point| point.at.to_i / seconds } }
          parts.flat_map(&:keys).uniq.sort.reverse.map { |key| line(parts.map { |part| part.fetch(key, []) }) }
        end

        # @return [Integer] seconds that a line of the table covers
        def seconds = RANGES.fetch(range)[1]

        # @return [Integer, nil] seconds between two samples of the series
        def spacing(series) = (history[series].spacing_seconds if history.series.include?(series))

        private

        def step = RANGES.fetch(range).first

        def shown?(ring) = ring[:step_seconds] == step

        def points(series) = history.points(series, step: step)

        def line(parts)
          ended = [parts.flatten.map(&:at).max + step, history.at].min
          Line.new(ended, parts.map { |points| points.filter_map(&:last).last })
        end
      end
    end
  end
end
