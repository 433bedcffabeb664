# frozen_string_literal: true

require_relative "report/display"
require_relative "report/page"
require_relative "report/ledger" # these are loaded now: a trap handler can load nothing
require_relative "report/findings"

module Memscope
  # Readings as text for people: as wide as a Display, or 80 columns, with box-drawing characters or in plain ASCII.
  # Report renders the readings it is given, and takes no reading itself.
  # @api private
  module Report
    # The file and the class of the page of each kind of reading.
    PAGES = File.read("#{__dir__}/report/pages.txt").scan(/^(\w[\w ]*): (\w+) (\w+)$/)
                .to_h { |kind, *page| [kind, page.freeze] }.freeze

    class << self
      # `options` are for the reading's page: `width` in columns, `color` (true on a terminal only); for a profile or a
      # census also `by` and `limit`; for a heap graph also `since` (an earlier one, of which the growth is shown) with
      # `limit`. `markdown` fences the text, to paste it into an issue. A reading without a page is shown by its
      # `inspect`.
      def render(reading, markdown: false, **options)
        return (page(reading, **options) || reading.inspect).to_s unless markdown

        text = render(reading, **options, width: Page::WIDTH, color: false)
        fence = "`" * ["```", *text.scan(/`+/)].map(&:length).max.succ
        "#{fence}text\n#{text}#{fence}\n"
      end

      # Takes the same arguments as `render`, except `markdown`; nil if this kind of reading has no page.
      def page(reading, unicode: true, **options)
        file, page = options.key?(:since) ? %w[heap_graph HeapSincePage] : page_of(reading)
        return unless file

        Loading.whole { require_relative "report/#{file}" }
        const_get(page).new(reading, unicode: unicode, **options)
      end

      # The file and the class of the reading's page.
      def page_of(reading) = (PAGES["diff of #{reading.of}"] if reading.kind == "diff") || PAGES[reading.class.kind]

      def flame_graph(profile, back: nil)
        Loading.whole { require_relative "flame_graph" }
        FlameGraph.new(profile, back: back).to_s
      end

      # A table of deaths (Postmortem), one a line.
      def deaths(page, deaths, **listing)
        rows = deaths.map do |one|
          [one.last_seen_at.strftime("%F %T"), one.word, Quantity.mebibytes(one.rss_bytes), one.pid.to_s,
           [one.identity.role, one.identity.release].compact.join(", ")]
        end
        page.listing(["last seen (UTC)", "ended", "MiB", "pid", ""], rows, **listing)
      end

      # Prints a ledger in the format of the io's Display.
      def print(ledger, io)
        Field.check(:io, io, "an IO or another object with #write", call: "Memscope.report") { io.respond_to?(:write) }
        io.write(render(ledger, **Display.of(io).to_h))
        nil
      end
    end
  end
end
