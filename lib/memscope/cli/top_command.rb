# frozen_string_literal: true

require_relative "command"
require_relative "other_process"
require_relative "../report"
require_relative "top/reader"
require_relative "top/source"
require_relative "top/terminal"
require_relative "top/view"

module Memscope
  module CLI
    # `memscope top`: the rows of a process's ledger as they change, or all Ruby processes.
    class TopCommand < Command
      include OtherProcess

      # Seconds.
      INTERVALS = (0.1..3600)
      # What a shell reports of a program that Ctrl-C has ended.
      INTERRUPTED = 130
      private_constant :INTERVALS, :INTERRUPTED

      # @return [String]
      def self.title = "top"

      # @return [String]
      def self.summary = "watch the memory of a process, or of all Ruby processes"

      # @return [String]
      def self.example = "memscope top --pid 4711"

      private

      def declare(parser)
        @every = 2.0
        declare_pid(parser)
        parser.on("--every SECONDS", Float, "how often to read (2)") { |seconds| @every = seconds }
      end

      def notes
        <<~TEXT
          Keys: q quits, p gives unused memory back, g collects garbage; both only with --pid, of
          a process that listens. One that does not is shown as the kernel tells of it.
        TEXT
      end

      def perform
        unless INTERVALS.cover?(@every)
          raise Failure.new("--every: given #{@every}, allowed: #{INTERVALS.min} to #{INTERVALS.max} seconds", USAGE)
        end

        watch(Top::Terminal.new($stdin, @out), other? ? Top::Source.of_process(other) : Top::Source.of_all)
      rescue Interrupt
        INTERRUPTED
      end

      def watch(terminal, source)
        unless terminal.there?
          raise Failure.new("there is no terminal; allowed: memscope ps, memscope report --pid N",
                            USAGE)
        end

        view = Top::View.new(unicode: Memscope::Report.encoding(@out) == Encoding::UTF_8)
        reader = Top::Reader.new(source, @every)
        terminal.open { answer_keys(terminal, reader, view) }
      ensure
        reader&.stop
      end

      def answer_keys(terminal, reader, view)
        loop do
          terminal.draw(view.lines(reader.frame, *terminal.size))
          case terminal.key(reader.news)
          when "q", :closed then return FINE
          when "\x03" then return INTERRUPTED
          when "\x1a" then terminal.suspend
          when "p" then reader.order(:purge)
          when "g" then reader.order(:gc)
          end
        end
      end
    end
  end
end
