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
        parser.on("--json", "print one JSON object") { @json = true }
        parser.on("--output FILE", "write to FILE, which must not exist yet") { |path| @output = path }
        declare_depths(parser)
        declare_readings(parser)
      end

      def perform
        refuse_depths
        reading = @reading ? Memscope.public_send(@reading) : Memscope.ledger(**@options)
        @err.puts "memscope report: of the memscope process itself; for a program of yours: memscope report -- COMMAND"
        write(reading)
        reading.rss_bytes ? FINE : INPUT_OUTPUT
      end

      def write(reading)
        return OutputFile.write(@output, text(reading, Encoding::UTF_8)) if @output

        self.class.write(@out, text(reading, Memscope::Report.encoding(@out)))
      end

      def text(reading, encoding)
        return "#{reading.to_json}\n" if @json
        return reading.to_s if @reading

        Memscope::Report.new(reading, unicode: encoding == Encoding::UTF_8).to_s
      end
    end
  end
end
