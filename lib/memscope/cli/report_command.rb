# frozen_string_literal: true

require_relative "command"
require_relative "output_file"
require_relative "program_report_command"
require_relative "reading_options"
require_relative "../report"

module Memscope
  module CLI
    # `memscope report`: the ledger of the process that runs it; `memscope report -- COMMAND` is ProgramReportCommand.
    class ReportCommand < Command
      include ReadingOptions

      # @return [String]
      def self.title = "report"

      # @return [String]
      def self.summary = "print where the memory of a process is, to the byte"

      # @return [String]
      def self.example = "memscope report --json --output ledger.json"

      # @param arguments [Array<String>] behind the command's name
      # @return [Integer] the exit status
      def run(arguments) = arguments.include?("--") ? of_program.run(arguments) : super

      # @return [String] for people
      def help = "#{super}\n#{of_program.help}"

      private

      def of_program = ProgramReportCommand.new(out: @out, err: @err)

      def declare(parser)
        @options = {}
        parser.on("--json", "print one JSON object a reading") { @json = true }
        parser.on("--output FILE", "write to FILE, which must not exist yet") { |path| @output = path }
        declare_depths(parser)
        declare_readings(parser)
      end

      def perform
        refuse_depths
        readings = chosen.empty? ? [Memscope.ledger(**@options)] : chosen.map { |name| Memscope.public_send(name) }
        @err.puts "memscope report: of the memscope process itself; for a program of yours: memscope report -- COMMAND"
        write(readings)
        readings.all?(&:known?) ? FINE : INPUT_OUTPUT
      end

      def write(readings)
        return OutputFile.write(@output, text(readings, Encoding::UTF_8)) if @output

        self.class.write(@out, text(readings, Memscope::Report.encoding(@out)))
      end

      def text(readings, encoding)
        return readings.map { |reading| "#{reading.to_json}\n" }.join if @json
        return readings.join("\n") unless chosen.empty?

        Memscope::Report.new(readings.first, unicode: encoding == Encoding::UTF_8).to_s
      end
    end
  end
end
