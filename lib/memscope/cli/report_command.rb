# frozen_string_literal: true

require_relative "command"
require_relative "output_file"
require_relative "../report"

module Memscope
  module CLI
    # `memscope report`: the ledger of the process that runs it.
    class ReportCommand < Command
      # @return [String]
      def self.title = "report"

      # @return [String]
      def self.summary = "print where the memory of a process is, to the byte"

      # @return [String]
      def self.example = "memscope report --json --output ledger.json"

      private

      def declare(parser)
        parser.on("--json", "print one JSON object") { @json = true }
        parser.on("--output FILE", "write to FILE, which must not exist yet") { |path| @output = path }
      end

      def perform
        ledger = Memscope.ledger
        @err.puts "memscope report: of the memscope process itself; for a program of yours, call Memscope.report in it"
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
