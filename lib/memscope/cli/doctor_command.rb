# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope doctor`: diagnoses a process; `memscope doctor -- COMMAND`: diagnoses a Ruby program when it ends. With
    # --every, later diagnoses judge growth since the first one. With --settings, it checks the allocator's settings
    # instead.
    class DoctorCommand < ReportCommand
      NOTES = <<~TEXT
        The exit status is 0 without a warning (also while the doctor has no verdict yet),
        1 if there are warnings, or if memory has grown since FILE, 2 if a finding is critical, 74 if the RSS is unknown.
      TEXT
      SETTINGS = ["--settings", "check the allocator's settings instead"].freeze
      EXCLUSIVE = [%i[settings since gc every markdown]].freeze
      private_constant :NOTES, :SETTINGS, :EXCLUSIVE

      form :process, "diagnose the memory of a process, and suggest remedies",
           "memscope doctor --pid 4711 --json --output diagnosis.json",
           [*PROCESS, *TEXT, MARKDOWN, SINCE, GC, SETTINGS], notes: NOTES, exclusive: EXCLUSIVE
      form :program, "run a Ruby program and diagnose its memory when it ends",
           "memscope doctor --every 600 --output app.txt -- bundle exec puma",
           [*EVERY, SETTINGS], notes: PROGRAM_NOTES, exclusive: EXCLUSIVE

      private

      def calls = { (@given[:settings] ? :lint : :doctor) => @given.slice(:gc) }

      def read
        since = earlier(Diagnosis)
        super.map { |reading| since ? compared(reading, since) : reading }
      end

      # Judges growth in this process: an earlier diagnosis is too large for a request. Refuses an earlier diagnosis of
      # another process.
      def compared(diagnosis, since)
        Doctor.diagnose(diagnosis.evidence, since: since, previous_severities: diagnosis.severities)
      rescue Invalid => e
        usage_error(e.as("--since #{@given[:since]}"))
      end

      def status(reading)
        return reading.problems.any? { |problem| problem.severity == :warning } ? 1 : FINE if @given[:settings]
        return INPUT_OUTPUT unless reading.evidence.ledger.rss_bytes

        { critical: 2, warning: 1 }.fetch(reading.severity, reading.grown? ? 1 : FINE)
      end
    end
  end
end
