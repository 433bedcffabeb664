# frozen_string_literal: true

require_relative "command"
require_relative "output_file"
require_relative "program_report_command"
require_relative "../report"

module Memscope
  module CLI
    # `memscope report`: the ledger of the process that runs it; `memscope report -- COMMAND` is ProgramReportCommand.
    class ReportCommand < Command
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
        parser.on("--deep", "walk the chunks of glibc's malloc") { @options[:deep] = true }
        parser.on("--shared", "tell what other processes share") { @options[:shared] = true }
        parser.on("--objects", "ask objects what they hold through malloc") { @options[:objects] = true }
      end

      def perform
        ledger = Memscope.ledger(**@options)
        @err.puts "memscope report: of the memscope process itself; for a program of yours: memscope report -- COMMAND"
        write(ledger)
        ledger.source == :none ? INPUT_OUTPUT : FINE
      end

      def write(ledger)
        return OutputFile.write(@output, text(ledger, Encoding::UTF_8)) if @output

        self.class.write(@out, text(ledger, Memscope::Report.encoding(@out)))
      end

      def text(ledger, encoding)
        return "#{ledger.to_json}\n" if @json

        Memscope::Report.new(ledger, unicode: encoding == Encoding::UTF_8).to_s
      end
    end
  end
end
