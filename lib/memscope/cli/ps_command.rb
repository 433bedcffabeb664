# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope ps`: every visible Ruby process, and whether it listens.
    class PsCommand < Command
      include Quantity

      COLUMNS = %w[pid RSS PSS USS malloc listens verdict command].freeze
      UNITS = ["", "MiB", "MiB", "MiB", "", "", "", ""].freeze
      # The columns shown on a terminal narrower than ROOM.
      NARROW_COLUMNS = [0, 1, 5, 7].freeze
      ROOM = 72
      # Of a process that does not listen, and can be asked nevertheless.
      COPY = "copy"
      # The verdicts of processes that are listed first.
      GROWTH = %w[leak step filling].freeze

      private

      def perform
        return deliver_readings(Peers.entries(answers: false).map(&:process)) if @given[:json]

        entries = Peers.entries.sort_by.with_index { |entry, rank| [GROWTH.index(entry.verdict) || GROWTH.size, rank] }
        deliver { |display| text(entries, display) }
      end

      # Commands are whole: they are wrapped on a terminal, and a process is one line elsewhere.
      def text(entries, display)
        return "#{WORDS[:none_visible]}\n" if entries.empty?

        shown = display.width < ROOM ? NARROW_COLUMNS : [0..]
        rows = [UNITS, *entries.map { |entry| cells(entry) }].map { |row| row.values_at(*shown) }
        page = Report::Page.new(**display.to_h)
        lines = page.listing(COLUMNS.values_at(*shown), rows, long: @out.tty? ? :wrap : :lines).to_a
        lines += ["", *page.wrapped(WORDS[:asked_in_a_copy])] if entries.any? { |entry| asked(entry.process) == COPY }
        page.encoded(lines.map { |line| "#{line.rstrip}\n" }.join)
      end

      def cells(entry)
        process = entry.process
        sizes = [process.rss_bytes, process.pss_bytes, process.uss_bytes].map { |bytes| mebibytes(bytes) }
        [process.pid.to_s, *sizes, entry.malloc_text, asked(process), entry.verdict.to_s, process.command.to_s]
      end

      # How a process can be asked, or why it cannot.
      def asked(process)
        return "yes" if process.listens?

        { possible: COPY, nil => "no" }.fetch(process.copying) { |why| "no: #{why.name.tr('_', ' ')}" }
      end
    end
  end
end
