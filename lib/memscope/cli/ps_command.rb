# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope ps`: every visible Ruby process, and whether it listens.
    class PsCommand < Command
      include Report::Quantity

      NOTES = <<~TEXT
        Every command that has --pid can query a process that listens
        (MEMSCOPE_LISTEN=1, Memscope.listen). For other processes, ps shows only the
        kernel's view: "?" marks a malloc that is mapped but may not be in use. verdict:
        whether the memory grows, as in memscope watch, for processes that keep their
        history. Only root sees other users' processes in full.
      TEXT
      FORMS = {
        process: { summary: "list Ruby processes, and show which of them listen",
                   example: "memscope ps --json", notes: NOTES, options: TEXT.first(1) }
      }.freeze
      # Seconds to wait for a process that listens.
      PATIENCE = 2
      COLUMNS = %w[pid uid RSS PSS USS malloc listens verdict].freeze
      SIZES = COLUMNS[2, 3].freeze
      # The columns shown on a terminal narrower than ROOM.
      FEW = %w[pid RSS listens].freeze
      ROOM = 72
      private_constant :FORMS, :NOTES, :PATIENCE, :COLUMNS, :SIZES, :FEW, :ROOM

      # A process, and the name of its proven malloc and the word of its verdict, if it listens and reports them.
      Entry = Struct.new(:process, :malloc, :verdict) do
        # @return [String] the proven malloc; else one that is mapped, followed by "?"; else "?"
        def malloc_text
          return malloc.name if malloc

          mapped = process.mallocs.map(&:name)
          (mapped - %i[glibc musl] + mapped).first.then { |name| name ? "#{name}?" : "?" }
        end
      end

      class << self
        # @return [Array<Entry>] the visible Ruby processes except this one, largest first
        def entries
          entries = (ExternalProcess.rubies - [Process.pid]).filter_map do |pid|
            process = ExternalProcess.read(pid, cgroup: false)
            Entry.new(process, *(reported(pid) if process.listens?))
          rescue Client::Unreachable
            nil # the process has ended meanwhile
          end
          entries.sort_by { |entry| [-(entry.process.rss_bytes || 0), entry.process.pid] }
        end

        private

        def reported(pid)
          client = Client.new(pid, timeout: PATIENCE)
          allocator = client.call(:allocator)
          malloc = allocator.name if allocator.proved?
          [malloc, client.call(:verdict).then { |verdict| verdict.word if verdict.known? }]
        rescue Client::Unreachable, Client::Failed, ArgumentError # no answer, or a memscope without verdicts
          [malloc]
        end
      end

      private

      def perform
        entries = self.class.entries
        return deliver_readings(entries.map(&:process)) if @given[:json]

        deliver { |display| text(entries, display) }
      end

      def text(entries, display)
        return "no other Ruby process is visible\n" if entries.empty?

        names = display.width < ROOM ? FEW : COLUMNS
        units = names.map { |name| SIZES.include?(name) ? "MiB" : "" }
        rows = entries.map { |entry| [*names.map { |name| cell(entry, name) }, entry.process.command.to_s] }
        lines = Report::Page.new(**display.to_h).listing([*names, "command"], [[*units, ""], *rows])
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
