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
        history; "no answer": it did not answer within 0.3 s. Only root sees other users' processes in full.
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
        # @param answers [Boolean] whether to ask the processes that listen: all at once, for `patience` seconds in all
        # @return [Array<Entry>] the visible Ruby processes except this one, largest first
        def entries(answers: true)
          entries = (ExternalProcess.rubies - [Process.pid]).filter_map do |pid|
            Entry.new(ExternalProcess.read(pid, cgroup: false))
          rescue Client::Unreachable
            nil # the process has ended meanwhile
          end
          ask_all(entries.select { |entry| entry.process.listens? }) if answers
          entries.sort_by { |entry| [-(entry.process.rss_bytes || 0), entry.process.pid] }
        end

        # @return [Float]
        def patience = 0.3

        private

        def ask_all(entries)
          Memscope.const_get(:Verdict) # is loaded before several threads need it
          deadline = Clock.now + patience
          entries.map { |entry| Thread.new { ask(entry, deadline) } }.each(&:join)
        end

        def ask(entry, deadline)
          call = ->(name) { Client.new(entry.process.pid, timeout: [deadline - Clock.now, 0.01].max).call(name) }
          allocator = call.call(:allocator)
          entry.malloc = allocator.name if allocator.proved?
          verdict = call.call(:verdict)
          entry.verdict = verdict.word if verdict.known?
        rescue Client::Unreachable => e
          entry.verdict = "no answer" if e.why == :busy
        rescue Client::Failed, ArgumentError
          nil # a memscope without verdicts
        end
      end

      private

      def perform
        return deliver_readings(self.class.entries(answers: false).map(&:process)) if @given[:json]

        entries = self.class.entries
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
