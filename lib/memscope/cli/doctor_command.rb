# frozen_string_literal: true

require_relative "report_command"

module Memscope
  module CLI
    # `memscope doctor`: diagnoses a process; `memscope doctor -- COMMAND`: diagnoses a Ruby program when it ends. With
    # --every, later diagnoses judge growth since the first one. With --settings, it checks the allocator's settings
    # instead; for a program, when it starts.
    class DoctorCommand < ReportCommand
      NOTES = <<~TEXT
        The exit status is 0 if nothing is wrong, 1 if there are findings, 2 if one of
        them is critical. Findings of severity "info" do not count.
      TEXT
      SETTINGS = ["--settings", "check the allocator's settings instead"].freeze
      FORMS = {
        process: { summary: "diagnose the memory of a process, and suggest remedies",
                   example: "memscope doctor --pid 4711 --json --output diagnosis.json", notes: NOTES,
                   options: [*PROCESS, *TEXT,
                             ["--since FILE", "judge growth since the diagnosis", "in FILE, written with --json"],
                             GC, SETTINGS] },
        program: { summary: "run a Ruby program and diagnose its memory when it ends",
                   example: "memscope doctor --every 600 --output app.txt -- bundle exec puma",
                   options: [*EVERY, SETTINGS], notes: PROGRAM_NOTES }
      }.freeze
      # The exit status by the worst finding.
      STATUSES = { critical: 2, warning: 1, info: FINE, nil => FINE }.freeze
      private_constant :FORMS, :NOTES, :SETTINGS, :STATUSES

      private

      def perform
        %i[since gc].each { |name| refuse("--settings and --#{name} exclude each other") if settings? && @given[name] }
        since = earlier
        reading = other? ? asking { of_other(since) } : own(since)
        deliver_readings([reading])
        status(reading)
      end

      def settings? = @given.key?(:settings)

      # The reading that the program reports.
      def chosen = [settings? ? :lint : :doctor]

      def start(program)
        refuse("--settings and --every exclude each other") if settings? && @given[:every]
        super
      end

      def own(since)
        say("this is the memscope process itself; for your program: memscope doctor -- COMMAND")
        return Memscope.lint if settings?

        comparing { Memscope.doctor(since: since, **collect) }
      end

      # Growth is judged in this process: an earlier diagnosis is too large for a request.
      def of_other(since)
        return other.call(:lint) if settings?

        diagnosis = other.call(:doctor, **collect)
        return diagnosis unless since

        comparing { Doctor.diagnose(diagnosis.evidence, since: since, held: diagnosis.severities) }
      end

      # Refuses a diagnosis of another process.
      def comparing
        yield
      rescue ArgumentError => e
        usage_error(e.message.sub("Memscope.doctor: since:", "--since #{@given[:since]}:"))
      end

      def collect = @given.slice(:gc)

      def status(reading)
        return reading.problems.any? { |problem| problem.severity == :warning } ? 1 : FINE if settings?

        reading.evidence.ledger.rss_bytes ? STATUSES.fetch(reading.severity) : INPUT_OUTPUT
      end

      def earlier
        Diagnosis.from_json(read_in_full(@given[:since], "--since")) if @given[:since]
      rescue ArgumentError => e
        usage_error("--since #{@given[:since]}: #{e.message}")
      end
    end
  end
end
