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
        def range = choice("range", RANGES.keys, RANGES.keys.first)

        # @return [Array<Hash>] what the chart marks besides the history's events: their times and kinds
        def marks = []

        def verdict_sentence = read(:verdict).sentence
      end

      # The memory of the process over time: as a chart, and each series as a line of a table. JSON is the whole
      # history. With range=1h, 12h or 7d, only the buckets of that range.
      # @api private
      class History < Page
        include OverTime

        READINGS = %i[history].freeze

        # @return [Memscope::History] with those of earlier processes in the same place, if the process has a black box
        def history = @history ||= lives ? lives.before(read(:history)) : read(:history)

        # @return [Boolean] whether the history goes back further than the process
        def continued? = history.started_at != read(:history).started_at

        # @return [Boxes::Lives, nil] of the service of the page's process
        def lives = processes.fetch(:lives, place.pid, sharers: 1) { Loading.unit(:Lives, Boxes).of(read(:history)) }

        def marks
          ends = lives&.deaths.to_a.map { |one| [one.last_seen_at, "#{one.identity.role} ended (#{one.word})"] }
          releases = lives&.releases.to_a.map { |at, name| [at, "release #{name}"] }
          [*ends, *releases].map { |at, kind| { at: at.strftime(Field::TIME), kind: kind } }
        end

        # @return [Array<Report::Table>] one line for each process of the service that has ended
        def deaths
          deaths = lives&.deaths.to_a.reverse
          return [] if deaths.empty?

          [Report.deaths(Report::Page.new(unicode: true), deaths, keys: deaths.map { |one| name(one) })]
        end

        def death = lives&.deaths&.find { |one| name(one) == @request.query["death"]&.last }

        def to_json(*)
          return super unless @request.query.key?("range")

          body = history.to_h
          curves = body[:curves].map { |curve| { **curve, rings: curve[:rings].select { |ring| shown?(ring) } } }
          JSON.generate({ **body, curves: curves })
        end

        # @return [Integer, nil] seconds between two samples of the series
        def spacing(series) = (history[series].spacing_seconds if history.series.include?(series))

        private

        def name(death) = File.basename(death.path)

        def shown?(ring) = ring[:step_seconds] == RANGES.fetch(range).first
      end
    end
  end
end
