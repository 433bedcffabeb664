# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope doctor`: diagnoses a process; `memscope doctor -- COMMAND`: diagnoses a Ruby program when it ends. With
    # --every, later diagnoses judge growth since the first one. With --settings, it checks the allocator's settings
    # instead; for a program, when it starts.
    class DoctorCommand < ReportCommand
      NOTES = <<~TEXT
        The exit status is 0 without a warning (also while the doctor has no verdict yet),
        1 if there are warnings, or if memory has grown since FILE, 2 if a finding is critical, 74 if the RSS is unknown.
      TEXT
      SETTINGS = ["--settings", "check the allocator's settings instead"].freeze
      FORMS = {
        process: { summary: "diagnose the memory of a process, and suggest remedies",
                   example: "memscope doctor --pid 4711 --json --output diagnosis.json", notes: NOTES,
                   options: [*PROCESS, *TEXT, MARKDOWN,
                             ["--since FILE", "judge growth since the diagnosis", "in FILE, written with --json"],
                             GC, SETTINGS] },
        program: { summary: "run a Ruby program and diagnose its memory when it ends",
                   example: "memscope doctor --every 600 --output app.txt -- bundle exec puma",
                   options: [*EVERY, SETTINGS], notes: PROGRAM_NOTES }
      }.freeze
      private_constant :FORMS, :NOTES, :SETTINGS

      private

      def read
        since = earlier(Diagnosis)
        reading = ask(*chosen, **@given.slice(:gc))
        [since ? compared(reading, since) : reading]
      end

      def settings? = @given.key?(:settings)

      def chosen = [settings? ? :lint : :doctor]

      def check
        refuse("--markdown and --json exclude each other") if @given[:markdown] && @given[:json]
        excluded = %i[since gc every markdown].find { |name| @given[name] } if settings?
        refuse("--settings and --#{excluded} exclude each other") if excluded
      end

      # Judges growth in this process: an earlier diagnosis is too large for a request. Refuses an earlier diagnosis of
      # another process.
      def compared(diagnosis, since)
        Doctor.diagnose(diagnosis.evidence, since: since, previous_severities: diagnosis.severities)
      rescue Invalid => e
        usage_error(e.as("--since #{@given[:since]}"))
      end

      def status(reading)
        return reading.problems.any? { |problem| problem.severity == :warning } ? 1 : FINE if settings?

        return INPUT_OUTPUT unless reading.evidence.ledger.rss_bytes

        { critical: 2, warning: 1 }.fetch(reading.severity, reading.grown? ? 1 : FINE)
      end
    end
  end
end
