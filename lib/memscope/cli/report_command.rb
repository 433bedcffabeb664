# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope report`: where the memory of a process is; `memscope report -- COMMAND`: where the memory of a Ruby
    # program is when it ends.
    class ReportCommand < Command
      PROGRAM_NOTES = <<~TEXT
        With -- COMMAND, memscope becomes that program, and the report goes to standard
        error, or to FILE. Only the started process reports, also past exec: when it
        ends, unless it is killed or calls exit! or Process.daemon, and every --every
        seconds. The exit status is COMMAND's own.
      TEXT
      GC = ["--gc", "collect garbage first, so that", "garbage does not count as in use"].freeze
      # The options of the ledger.
      DEPTHS = { deep: "walk the chunks of glibc's malloc", shared: "split rows into shared and private",
                 objects: "add the malloc memory that objects report",
                 garbage: "split garbage from reachable memory" }.freeze
      # The readings other than the ledger, by the calls that read them.
      READINGS = { mappings: "mappings", arenas: "malloc's arenas", size_classes: "jemalloc's size classes",
                   workers: "Puma's processes" }.freeze
      MARKDOWN = ["--markdown", "print Markdown, to paste into an issue"].freeze
      SINCE = ["--since FILE", "print what grew since the report", "in FILE, written with --json"].freeze
      EVERY = ["--every SECONDS", SECONDS, "with COMMAND: also report at this interval"].freeze
      OPTIONS = { **DEPTHS, **READINGS.transform_values { |text| "print #{text} instead" } }
                .map { |name, text| ["--#{name.name.tr('_', '-')}", text] }.freeze
      private_constant :PROGRAM_NOTES, :GC, :DEPTHS, :READINGS, :MARKDOWN, :SINCE, :EVERY, :OPTIONS

      declare "print where the memory of a process is, to the byte",
              "memscope report --pid 4711 --json --output ledger.json",
              "memscope report --every 60 --output app.txt -- bundle exec puma",
              options: [*PROCESS, *TEXT, MARKDOWN, *OPTIONS, GC, EVERY], program: [:every], notes: PROGRAM_NOTES,
              exclusive: READINGS.keys.map { |name| [name, *DEPTHS.keys, :gc] }

      private

      def perform
        readings = read
        note_own
        deliver_readings(readings, **view)
        status(*readings)
      end

      def start
        hand_over("report", **@given.slice(:every, :json), calls: calls, view: view)
      end

      # Calls of Memscope to report, with their options.
      def calls
        chosen = @given.keys & READINGS.keys # in the order of the command line
        return chosen.to_h { |name| [name, {}] } if chosen.any?

        { ledger: program? ? { deep: true, **depths } : depths }
      end

      # Options of the reports.
      def view = @given.slice(:markdown)

      def depths = @given.slice(*DEPTHS.keys, :gc)

      def read = calls.map { |name, options| name == :ledger ? asking { ledger } : ask(name, **options) }

      def status(*readings) = readings.all?(&:known?) ? FINE : INPUT_OUTPUT

      # If the process does not listen, the kernel's view replaces the ledger, unless the ledger has options.
      def ledger
        other? ? other.call(:ledger, **depths) : Memscope.ledger(**depths)
      rescue Client::Unreachable => e
        raise if @given.key?(:socket) || depths.any? || e.why == :gone

        ExternalProcess.read(@given[:pid]).tap { say("#{e.message}; this is the kernel's view only") }
      end
    end
  end
end
