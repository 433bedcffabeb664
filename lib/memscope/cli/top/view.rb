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

        def initialize(unicode:)
          @unicode = unicode
          @frame = { title: "memscope top", rows: [], long: :cut, note: "reading" }
          @series = {}
        end

        # @param frame [Hash{Symbol => Object}] the parts that are to be shown from now on: rows of [id, bytes, text],
        #   of which the first is RSS for a single process; the treatment of a `long` text (see Report::Table); `title`,
        #   `verdict` (a sentence) and `note`, which is of this frame alone
        def add(frame)
          @frame = { **@frame, note: nil, **frame }
          return unless frame.key?(:rows)

          later = !@began.nil?
          @began ||= Time.now
          @series = frame[:rows].to_h do |id, bytes|
            series = @series.fetch(id) { { first: bytes, new: later, values: [] } }
            [id, { **series, values: [*series[:values], bytes].last(SPAN) }]
          end
        end

        def lines(columns, lines)
          page = Report::Page.new(unicode: @unicode, width: columns)
          foot = [@frame[:note].to_s, "q quit"]
          rows = @frame[:rows].first([lines - 3 - foot.size, 0].max)
          ["memscope #{VERSION}   #{@frame[:title]}", @frame[:verdict].to_s, *table(rows, page), *foot]
            .last(lines).map { |text| page.encoded(text)[0, columns] }
        end

        private

        def table(rows, page)
          scale = [MEBIBYTE, *rows.map { |id, *| spread(id) }].max if page.width >= ROOM
          cells = rows.map { |row| cells(row, page, scale) }
          page.listing(["MiB", "change", *("" if scale), legend(scale)], cells, long: @frame[:long]).to_a
        end

        def values(id) = @series.fetch(id, { values: [] })[:values].compact

        # How far apart the row's values are.
        def spread(id) = values(id).minmax.then { |least, most| least ? most - least : 0 }

        def legend(scale)
          levels = Report::Sparkline::LEVELS.fetch(@unicode)
          bars = "; #{levels[-1]} is #{size(scale)} more than #{levels[0]}" if scale
          @began ? "since #{@began.strftime('%H:%M:%S')}#{bars}" : ""
        end

        def cells(row, page, scale)
          id, bytes, text = row
          spark = Report::Sparkline.of(values(id), scale: scale, unicode: @unicode).rjust(SPAN) if scale
          [bytes ? mebibytes(bytes) : page.unknown, change(id, bytes), *spark, text]
        end

        # The change since the first frame, or "new" for a row that appeared later.
        def change(id, bytes)
          first, new = @series.fetch(id, {}).values_at(:first, :new)
          return "new" if new
          return "" unless first && bytes

          text = signed_mebibytes(bytes - first)
          text == "0.0" ? "" : text
        end
      end
    end
  end
end
