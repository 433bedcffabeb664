# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope doctor` diagnoses a process. `memscope doctor -- COMMAND` diagnoses a Ruby program when it ends. With
    # --every, later diagnoses judge growth since the first one. With --settings, it checks the allocator's settings
    # instead.
    class DoctorCommand < ReportCommand
      declare program: [:every], process: [:since], exclusive: [%i[settings since gc every markdown]]

      private

      def calls = { (@given[:settings] ? :lint : :doctor) => @given.slice(:gc) }

      def read
        since = saved(Diagnosis, :since)
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
