# frozen_string_literal: true

require_relative "command"
require_relative "output_file"
require_relative "../purge"
require_relative "../report"
require_relative "../report/purge_table"

module Memscope
  module CLI
    # `memscope purge [LEVER...]`: gives memory of the process that runs it back, and prints how much.
    class PurgeCommand < Command
      # @return [String]
      def self.title = "purge"

      # @return [String]
      def self.summary = "give unused memory back, and print how much that was"

      # @return [String]
      def self.example = "memscope purge --dry-run gc trim"

      private

      def declare(parser)
        @options = {}
        parser.on("--dry-run", "predict only, and change nothing") { @options[:dry_run] = true }
        parser.on("--arena N", Integer, "one of jemalloc's arenas, for decay and purge") { |n| @options[:arena] = n }
        parser.on("--settle S", Float, "look again S seconds later") { |seconds| @options[:settle] = seconds }
        parser.on("--json", "print one JSON object") { @json = true }
        parser.on("--output FILE", "write to FILE, which must not exist yet") { |path| @output = path }
      end

      def operands = "[LEVER...]"

      def notes
        "Levers, in the order in which they are pulled: #{Purge::LEVERS.join(', ')};\nby default all that this " \
          "process has. It purges itself; in a process of yours: Memscope.purge\n"
      end

      def take(rest)
        @levers = rest.map(&:to_sym)
      end

      def perform
        result = purge
        @err.puts "memscope purge: of the memscope process itself; in a process of yours: Memscope.purge"
        write(result)
        result.before.rss_bytes ? FINE : INPUT_OUTPUT
      end

      def purge
        Memscope.purge(*@levers, **@options)
      rescue ArgumentError => e
        raise Failure.new(e.message.delete_prefix("Memscope.purge: "), USAGE)
      end

      def write(result)
        return OutputFile.write(@output, text(result, Encoding::UTF_8)) if @output

        self.class.write(@out, text(result, Memscope::Report.encoding(@out)))
      end

      def text(result, encoding)
        return "#{result.to_json}\n" if @json

        Memscope::Report::PurgeTable.new(result, unicode: encoding == Encoding::UTF_8).to_s
      end
    end
  end
end
