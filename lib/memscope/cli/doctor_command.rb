# frozen_string_literal: true

require_relative "command"
require_relative "of_program"
require_relative "other_process"
require_relative "output_file"
require_relative "program_doctor_command"
require_relative "../report"

module Memscope
  module CLI
    # `memscope doctor`: a diagnosis of the process that runs it, or of one that listens; `memscope doctor -- COMMAND`
    # is ProgramDoctorCommand.
    class DoctorCommand < Command
      include OfProgram
      include OtherProcess

      # The exit status by the worst finding.
      STATUSES = { critical: 2, warning: 1, info: FINE, nil => FINE }.freeze
      private_constant :STATUSES

      # @return [String]
      def self.title = "doctor"

      # @return [String]
      def self.summary = "say what is wrong with the memory of a process, and what helps"

      # @return [String]
      def self.example = "memscope doctor --json --output diagnosis.json"

      private

      def program_command = ProgramDoctorCommand

      def declare(parser)
        declare_pid(parser)
        parser.on("--json", "print one JSON object") { @json = true }
        parser.on("--output FILE", "write to FILE, which must not exist yet") { |path| @output = path }
        parser.on("--since FILE", "judge growth since the diagnosis in FILE, as --json prints it") do |path|
          @since = path
        end
        parser.on("--settings", "show how the allocator is set, and what would suit, instead") { @settings = true }
      end

      def notes
        <<~TEXT
          The exit status is 0 where nothing is wrong, 1 where there are findings, 2 where one of
          them is critical. What is only worth knowing ("info") does not count.
        TEXT
      end

      def perform
        refuse("--settings and --since exclude each other") if @settings && @since
        since = earlier
        reading = other? ? asking { of_other(since) } : own(since)
        write(reading)
        status(reading)
      end

      def own(since)
        @err.puts "memscope doctor: of the memscope process itself; for a program of yours: memscope doctor -- COMMAND"
        @settings ? Memscope.lint : Memscope.doctor(since: since)
      end

      # Growth is judged here: an earlier diagnosis is longer than a request may be.
      def of_other(since)
        return other.call(:lint) if @settings

        diagnosis = other.call(:doctor)
        since ? Doctor.diagnose(diagnosis.evidence, since: since) : diagnosis
      end

      def status(reading)
        return reading.problems.any? { |problem| problem.severity == :warning } ? 1 : FINE if @settings

        reading.evidence.ledger.rss_bytes ? STATUSES.fetch(reading.severity) : INPUT_OUTPUT
      end

      def earlier
        return unless @since

        require_relative "../doctor"
        Diagnosis.parse(File.read(@since))
      rescue SystemCallError => e
        raise Failure.new("--since #{@since}: #{e.class.new.message}", INPUT_OUTPUT)
      rescue ArgumentError => e
        raise Failure.new("--since #{@since}: #{e.message}", USAGE)
      end

      def write(reading)
        return OutputFile.write(@output, text(reading, Encoding::UTF_8)) if @output

        self.class.write(@out, text(reading, Memscope::Report.encoding(@out)))
      end

      def text(reading, encoding)
        @json ? "#{reading.to_json}\n" : reading.to_s(unicode: encoding == Encoding::UTF_8)
      end
    end
  end
end
