# frozen_string_literal: true

module Memscope
  module Launch
    # Reports the ledger, or other readings, of the program that loads this file, when the program ends and at
    # intervals. memscope itself is loaded only when the first report, or the history, needs it: until then the program
    # runs undisturbed.
    class ProgramReport
      # @param order [Handoff::Order] title, every, output, json, calls (of Memscope, with their options) or dump (a
      #   path) and format, history (whether to keep one), view (options of Reading#to_s), and those of Order#display
      def initialize(order)
        @order = order
        @title = order[:title]
        @pid = Process.pid
        @started = now
        @turn = Thread::Mutex.new
        @ended = false
        @io = order.output
      end

      # To be called before the program registers its own at_exit handlers: the first one registered runs last. Forked
      # processes do not report.
      def start
        return check_settings if @order[:calls]&.key?(:lint)

        at_exit { report(ending: true) if Process.pid == @pid }
        @order.background { repeat(@order[:every]) } if @order[:every]
        keep_history if @order[:history]
      end

      private

      def keep_history
        @order.load_memscope
        Memscope::History.start
      rescue StandardError, ScriptError, NoMemoryError => e
        @order.complain("no history: #{e.message} (#{e.class})")
      end

      # Reads the settings before the script runs. JSON is written at the end: loading the library json at the start
      # could preempt the program's own version of it.
      def check_settings
        @order.load_memscope
        @lint = Memscope.lint
        return report(ending: true) unless @order[:json]

        at_exit { report(ending: true) if Process.pid == @pid }
      rescue StandardError, ScriptError, NoMemoryError => e
        @order.complain("no report: #{e.message} (#{e.class})")
      end

      def repeat(seconds)
        loop do
          sleep(seconds)
          report
        end
      end

      # An error here does not change how the program ends.
      def report(ending: false)
        @turn.synchronize do
          break if @ended

          @ended = ending
          write(ending)
        end
      rescue StandardError, ScriptError, NoMemoryError => e
        @order.complain("no report: #{e.message} (#{e.class})")
      end

      def write(ending)
        @order.load_memscope
        return @io.write(readings.map { |reading| "#{reading.to_json}\n" }.join) if @order[:json]

        @io.write(heading(ending)) if @order[:every]
        @io.write(readings.map { |reading| reading.to_s(**@order.display(@io), **view) }.join("\n"))
        @io.write(ending ? curve : "\n") if @order[:calls]
      end

      def view
        view = @order[:view].to_h
        view[:markdown] && Memscope.respond_to?(:verdict) ? { **view, sentence: Memscope.verdict.sentence } : view
      end

      # The RSS over time, if the program has kept its history.
      def curve
        return "" if view[:markdown] || Memscope.autoload?(:History) || !Memscope::History.running?

        require_relative "../report/history"
        lines = Memscope::Report::HistoryPage.new(Memscope.history, **@order.display(@io)).curve
        lines.empty? ? "" : ["", *lines, ""].join("\n")
      end

      def readings
        return [@lint] if @lint
        return [Memscope.dump(@order[:dump], format: @order[:format])] if @order[:dump]

        @order[:calls].map { |name, options| name == :doctor ? diagnose : Memscope.public_send(name, **options) }
      end

      # Later diagnoses judge growth since the first one.
      def diagnose
        diagnosis = Memscope.doctor(since: @first)
        @first ||= diagnosis
        diagnosis
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def heading(ending) = "memscope #{@title}: #{'at the end, ' if ending}after #{(now - @started).round(1)} s\n\n"
    end
  end
end
