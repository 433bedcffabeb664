# frozen_string_literal: true

module Memscope
  module CLI
    module Top
      # Formats frames as lines: MiB, change since the first frame, sparkline, text of the row.
      class View
        include Report::Quantity

        # Frames in a sparkline. Terminals with fewer than ROOM columns show none.
        SPAN = 20
        ROOM = 60
        LEVELS = { true => "▁▂▃▄▅▆▇█", false => "_.-=+*#@" }.freeze
        KEYS = "q quit   p purge   g collect garbage"
        private_constant :SPAN, :ROOM, :LEVELS, :KEYS

        # @param unicode [Boolean] false: plain ASCII
        def initialize(unicode:)
          @page = Report::Page.new(unicode: unicode)
          @levels = LEVELS.fetch(unicode)
          @series = {}
        end

        # @param frame [Frame]
        # @param columns [Integer]
        # @param lines [Integer]
        # @return [Array<String>] as many and as long as fit
        def lines(frame, columns, lines)
          remember(frame)
          @span = columns < ROOM ? 0 : SPAN
          head = ["memscope #{VERSION}   #{frame.title}", "", heading]
          foot = [frame.note.to_s, KEYS]
          rows = frame.rows.first([lines - head.size - foot.size, 0].max).map { |row| line(row) }
          [*head, *rows, *foot].last(lines).map { |text| @page.cut(text.to_s, columns) }
        end

        private

        # Adds a frame to the series, but only once: the same frame may be drawn again.
        def remember(frame)
          return if frame.moment.nil? || frame.moment == @moment

          @moment = frame.moment
          @series = frame.rows.to_h do |id, bytes|
            series = @series.fetch(id) { { first: bytes, values: [] } }
            [id, { first: series[:first], values: [*series[:values], bytes].last(SPAN) }]
          end
        end

        def heading = "#{'MiB'.rjust(10)}#{'change'.rjust(10)}"

        def line(row)
          id, bytes, text = row
          series = @series.fetch(id, { first: bytes, values: [] })
          spark = "#{spark(series[:values].compact).rjust(@span)}  " if @span.positive?
          "#{cell(bytes).rjust(10)}#{change(series[:first], bytes).rjust(10)}  #{spark}#{text}"
        end

        def cell(bytes) = bytes ? mebibytes(bytes) : @page.unknown

        def change(first, bytes)
          return "" unless first && bytes

          text = signed_mebibytes(bytes - first)
          text == "0.0" ? "" : text
        end

        # A sparkline, scaled from its lowest to its highest value; flat if all values are equal.
        def spark(values)
          least, most = values.minmax
          return @levels[0] * values.size if least == most

          values.map { |value| @levels[(value - least) * (@levels.size - 1) / (most - least)] }.join
        end
      end
    end
  end
end
