# frozen_string_literal: true

require_relative "../../show/report/sparkline"

module Memscope
  module CLI
    module Top
      # Formats frames as lines: MiB, change since the first frame, sparkline, text of the row.
      #
      # All sparklines have one scale, and each begins at its row's lowest value: equal heights are equal amounts, and a
      # row that does not change is flat. A full bar stands for at least a MiB.
      class View
        include Quantity

        # Frames in a sparkline. Terminals with fewer than ROOM columns show none.
        SPAN = 20
        ROOM = 60
        NUMBERS = 10
        private_constant :SPAN, :ROOM, :NUMBERS

        # @param unicode [Boolean] false: plain ASCII
        def initialize(unicode:)
          @page = Report::Page.new(unicode: unicode)
          @unicode = unicode
          @series = {}
        end

        # @param frame [Hash{Symbol => Object}] of Reader
        # @param columns [Integer]
        # @param lines [Integer]
        # @return [Array<String>] as many and as long as fit
        def lines(frame, columns, lines)
          remember(frame)
          measure(columns)
          foot = [frame[:note].to_s, "q quit"]
          rows = frame[:rows].first([lines - 3 - foot.size, 0].max)
          @scale = [MEBIBYTE, *rows.map { |id, *| spread(id) }].max
          [*head(frame), *rows.map { |row| line(row) }, *foot].last(lines).map { |text| @page.cut(text.to_s, columns) }
        end

        private

        def measure(columns)
          @span = columns < ROOM ? 0 : SPAN
          @room = columns - (2 * NUMBERS) - 2 - (@span.zero? ? 0 : @span + 2)
        end

        # Adds a frame to the series, but only once: the same frame may be drawn again.
        def remember(frame)
          return if frame[:moment].nil? || frame[:moment] == @moment

          later = !@moment.nil?
          @moment = frame[:moment]
          @began ||= Time.now
          @series = frame[:rows].to_h do |id, bytes|
            series = @series.fetch(id) { { first: bytes, new: later, values: [] } }
            [id, { **series, values: [*series[:values], bytes].last(SPAN) }]
          end
        end

        def values(id) = @series.fetch(id, { values: [] })[:values].compact

        # How far apart the row's values are.
        def spread(id) = values(id).minmax.then { |least, most| least ? most - least : 0 }

        def head(frame)
          since = "  since #{@began.strftime('%H:%M:%S')}" if @began
          levels = Report::Sparkline::LEVELS.fetch(@unicode)
          bars = "; #{levels[-1]} is #{size(@scale)} more than #{levels[0]}" if @began && @span.positive?
          ["memscope #{VERSION}   #{frame[:title]}", frame[:verdict].to_s,
           "#{'MiB'.rjust(NUMBERS)}#{'change'.rjust(NUMBERS)}#{since}#{bars}"]
        end

        def line(row)
          id, bytes, text = row
          spark = "#{spark(id).rjust(@span)}  " if @span.positive?
          text = shortened(text) if text.is_a?(Array)
          "#{cell(bytes).rjust(NUMBERS)}#{change(id, bytes).rjust(NUMBERS)}  #{spark}#{text}"
        end

        # The labels of the rows above a row and of the row itself; the first labels are left out if all would be too
        # long.
        def shortened(labels)
          texts = labels.each_index.map { |above| [*("..." if above.positive?), *labels.drop(above)].join(" / ") }
          texts.find { |text| text.length <= @room } || labels.last
        end

        def cell(bytes) = bytes ? mebibytes(bytes) : @page.unknown

        # The change since the first frame; "new" for a row that appeared later.
        def change(id, bytes)
          first, new = @series.fetch(id, {}).values_at(:first, :new)
          return "new" if new
          return "" unless first && bytes

          text = signed_mebibytes(bytes - first)
          text == "0.0" ? "" : text
        end

        def spark(id) = Report::Sparkline.of(values(id), scale: @scale, unicode: @unicode)
      end
    end
  end
end
