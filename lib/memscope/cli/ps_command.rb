# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope ps`: every visible Ruby process, and whether it listens.
    class PsCommand < Command
      include Quantity

      NOTES = <<~TEXT
        Every command that has --pid can query a process that listens
        (MEMSCOPE_LISTEN=1, Memscope.listen). For other processes, ps shows only the
        kernel's view: "?" marks a malloc that is mapped but may not be in use. verdict:
        as in memscope watch; "no answer": not within 0.3 s. What leaks comes first,
        then what rose or fills a cache, then the others, each by RSS.
      TEXT
      COLUMNS = %w[pid RSS PSS USS malloc listens verdict command].freeze
      UNITS = ["", "MiB", "MiB", "MiB", "", "", "", ""].freeze
      # The columns shown on a terminal narrower than ROOM.
      FEW = [0, 1, 5, 7].freeze
      ROOM = 72
      # The verdicts of what comes first.
      GROWTH = %w[leak step filling].freeze
      private_constant :NOTES, :COLUMNS, :UNITS, :FEW, :ROOM, :GROWTH

      declare "list Ruby processes, and show which of them listen", "memscope ps --json", options: TEXT.first(1),
                                                                                          notes: NOTES

      private

      def perform
        return deliver_readings(Peers.entries(answers: false).map(&:process)) if @given[:json]

        entries = Peers.entries.sort_by.with_index do |entry, rank|
          [GROWTH.index(entry.verdict) || GROWTH.size, rank]
        end
        deliver { |display| text(entries, display) }
      end

      # Commands are whole: on a terminal, they go on below; elsewhere, a process is one line.
      def text(entries, display)
        return "no other Ruby process is visible\n" if entries.empty?

        shown = display.width < ROOM ? FEW : [0..]
        rows = [UNITS, *entries.map { |entry| cells(entry) }].map { |row| row.values_at(*shown) }
        page = Report::Page.new(**display.to_h)
        lines = page.listing(COLUMNS.values_at(*shown), rows, long: @out.tty? ? :wrap : :lines).to_a
        page.encoded(lines.map { |line| "#{line.rstrip}\n" }.join)
      end

      def cells(entry)
        process = entry.process
        sizes = [process.rss_bytes, process.pss_bytes, process.uss_bytes].map { |bytes| mebibytes(bytes) }
        [process.pid.to_s, *sizes, entry.malloc_text, process.listens? ? "yes" : "no", entry.verdict.to_s,
         process.command.to_s]
      end
    end
  end
end
