# frozen_string_literal: true

require_relative "command"
require_relative "other_process"
require_relative "output_file"
require_relative "../purge"
require_relative "../report"

module Memscope
  module CLI
    # `memscope purge [LEVER...]`: gives memory of a process that listens back, or of the one that runs it, and prints
    # how much.
    class PurgeCommand < Command
      include OtherProcess

      # @return [String]
      def self.title = "purge"

      # @return [String]
      def self.summary = "give unused memory back, and print how much that was"

      # @return [String]
      def self.example = "memscope purge --pid 4711 gc trim"

      private

      def declare(parser)
        @options = {}
        declare_pid(parser)
        parser.on("--dry-run", "predict only, and change nothing") { @options[:dry_run] = true }
        parser.on("--arena N", Integer, "one of jemalloc's arenas, for decay and purge") { |n| @options[:arena] = n }
        parser.on("--settle S", Float, "look again S seconds later") { |seconds| @options[:settle] = seconds }
        parser.on("--json", "print one JSON object") { @json = true }
        parser.on("--output FILE", "write to FILE, which must not exist yet") { |path| @output = path }
      end

      def operands = "[LEVER...]"

      def notes
        "Levers, in the order in which they are pulled: #{Purge::LEVERS.join(', ')};\nby default all that " \
          "the process has. Without --pid it purges itself.\n"
      end

      def take(rest)
        @levers = rest.map(&:to_sym)
      end

      def perform
        result = other? ? asking { of_other(**@options) } : own
        write(result)
        result.before.rss_bytes ? FINE : INPUT_OUTPUT
      end

      # It is waited for here: in the other process that would keep all who ask it waiting.
      def of_other(settle: 0, **options)
        unless settle.between?(0, Purge::LONGEST_SETTLE)
          raise ArgumentError, "settle: given #{settle}, allowed: a number of seconds from 0 to #{Purge::LONGEST_SETTLE}"
        end

        result = other.call(:purge, levers: @levers, **options)
        return result if result.dry_run? || settle.zero?

        sleep(settle)
        Purge::Result.from_h({ **result.to_h, settle_seconds: settle, settled: other.call(:ledger).to_h })
      end

      def own
        result = Memscope.purge(*@levers, **@options)
        @err.puts "memscope purge: of the memscope process itself; for one of yours: memscope purge --pid N"
        result
      rescue ArgumentError => e
        raise Failure.new(e.message.delete_prefix("Memscope.purge: "), USAGE)
      end

      def write(result)
        return OutputFile.write(@output, text(result, Encoding::UTF_8)) if @output

        self.class.write(@out, text(result, Memscope::Report.encoding(@out)))
      end

      def text(result, encoding)
        return "#{result.to_json}\n" if @json

        Memscope::Report.render(result, unicode: encoding == Encoding::UTF_8)
      end
    end
  end
end
