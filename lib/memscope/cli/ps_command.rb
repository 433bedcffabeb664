# frozen_string_literal: true

require_relative "command"
require_relative "processes"
require_relative "../report"

module Memscope
  module CLI
    # `memscope ps`: every Ruby process that can be seen, and which of them listen.
    class PsCommand < Command
      include Memscope::Report::Quantity

      # @return [String]
      def self.title = "ps"

      # @return [String]
      def self.summary = "list the Ruby processes, and which of them can be asked"

      # @return [String]
      def self.example = "memscope ps --json"

      private

      def declare(parser)
        parser.on("--json", "print one JSON object a process") { @json = true }
      end

      def notes
        <<~TEXT
          A process that listens (MEMSCOPE_LISTEN=1, Memscope.listen) can be asked with --pid by
          report, doctor, purge and top. All others are seen from outside: "?" is a malloc that
          is mapped, which does not prove that it serves. Those of other users only root sees
          in full.
        TEXT
      end

      def perform
        entries = Processes.read
        self.class.write(@out, @json ? json(entries) : text(entries))
      end

      def json(entries) = entries.map { |entry| "#{entry.outside.to_json}\n" }.join

      def text(entries)
        page = Memscope::Report::Page.new(unicode: Memscope::Report.encoding(@out) == Encoding::UTF_8)
        return "no other Ruby process can be seen\n" if entries.empty?

        rows = entries.map { |entry| cells(entry, page) }
        numbers = Memscope::Report::Columns.new(%w[pid uid RSS PSS USS malloc listens], [units, *rows]).lines
        commands = ["command", "", *entries.map { |entry| entry.outside.command.to_s }]
        numbers.zip(commands).map { |line, command| "#{fitting(page, line, command)}\n" }.join
      end

      def units = ["", "", "MiB", "MiB", "MiB", "", ""]

      def cells(entry, page)
        outside = entry.outside
        sizes = [outside.rss_bytes, outside.pss_bytes, outside.uss_bytes]
        [outside.pid.to_s, outside.uid.to_s, *sizes.map { |bytes| bytes ? mebibytes(bytes) : page.unknown },
         entry.malloc_text.to_s, outside.listens? ? "yes" : "no"]
      end

      def fitting(page, line, command) = page.cut("#{line}  #{command}", Memscope::Report::Page::WIDTH).rstrip
    end
  end
end
