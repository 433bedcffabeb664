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
        whether the memory grows, as in memscope watch, for processes that keep their
        history; "no answer": it did not answer within 0.3 s. Only root sees other
        users' processes in full.
      TEXT
      FORMS = {
        process: { summary: "list Ruby processes, and show which of them listen",
                   example: "memscope ps --json", notes: NOTES, options: TEXT.first(1) }
      }.freeze
      COLUMNS = %w[pid uid RSS PSS USS malloc listens verdict].freeze
      SIZES = COLUMNS[2, 3].freeze
      # The columns shown on a terminal narrower than ROOM.
      FEW = %w[pid RSS listens].freeze
      ROOM = 72
      private_constant :FORMS, :NOTES, :COLUMNS, :SIZES, :FEW, :ROOM

      private

      def perform
        return deliver_readings(Peers.entries(answers: false).map(&:process)) if @given[:json]

        entries = Peers.entries
        deliver { |display| text(entries, display) }
      end

      def text(entries, display)
        return "no other Ruby process is visible\n" if entries.empty?

        names = display.width < ROOM ? FEW : COLUMNS
        units = names.map { |name| SIZES.include?(name) ? "MiB" : "" }
        rows = entries.map { |entry| [*names.map { |name| cell(entry, name) }, entry.process.command.to_s] }
        lines = Report::Page.new(**display.to_h).listing([*names, "command"], [[*units, ""], *rows]).to_a
        "#{lines.join("\n")}\n"
      end

      def cell(entry, name)
        process = entry.process
        case name
        when "malloc" then entry.malloc_text.to_s
        when "listens" then process.listens? ? "yes" : "no"
        when "verdict" then entry.verdict.to_s
        when *SIZES then mebibytes(process.public_send(:"#{name.downcase}_bytes"))
        else process.public_send(name).to_s
        end
      end
    end
  end
end
