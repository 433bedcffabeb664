# frozen_string_literal: true

require_relative "command"
require_relative "of_program"
require_relative "other_process"
require_relative "output_file"
require_relative "program_report_command"
require_relative "reading_options"
require_relative "../report"

module Memscope
  module CLI
    # `memscope report`: the ledger of the process that runs it, or of one that listens; `memscope report -- COMMAND` is
    # ProgramReportCommand.
    class ReportCommand < Command
      include OfProgram
      include OtherProcess
      include ReadingOptions

      # @return [String]
      def self.title = "report"

      # @return [String]
      def self.summary = "print where the memory of a process is, to the byte"

      # @return [String]
      def self.example = "memscope report --json --output ledger.json"

      private

      def program_command = ProgramReportCommand

      def declare(parser)
        @options = {}
        declare_pid(parser)
        parser.on("--json", "print one JSON object a reading") { @json = true }
        parser.on("--output FILE", "write to FILE, which must not exist yet") { |path| @output = path }
        declare_depths(parser)
        declare_readings(parser)
      end

      def perform
        refuse_depths
        readings = other? ? asking { readings_of_other } : own_readings
        write(readings)
        readings.all?(&:known?) ? FINE : INPUT_OUTPUT
      end

      def own_readings
        @err.puts "memscope report: of the memscope process itself; for a program of yours: memscope report -- COMMAND"
        chosen.empty? ? [Memscope.ledger(**@options)] : chosen.map { |name| Memscope.public_send(name) }
      end

      # Of one that does not listen, what the kernel tells, unless it was asked for more than that.
      def readings_of_other
        chosen.empty? ? [other.call(:ledger, **@options)] : chosen.map { |name| other.call(name) }
      rescue Client::Unreachable => e
        raise if @socket || chosen.any? || @options.any? || e.why == :gone

        outside = ExternalProcess.read(@pid)
        @err.puts "memscope report: #{e.message}; this is the view from outside"
        [outside]
      end

      def write(readings)
        return OutputFile.write(@output, text(readings, Encoding::UTF_8)) if @output

        self.class.write(@out, text(readings, Memscope::Report.encoding(@out)))
      end

      def text(readings, encoding)
        return readings.map { |reading| "#{reading.to_json}\n" }.join if @json
        return readings.join("\n") unless readings.first.is_a?(Ledger)

        Memscope::Report.new(readings.first, unicode: encoding == Encoding::UTF_8).to_s
      end
    end
  end
end
