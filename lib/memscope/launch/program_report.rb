# frozen_string_literal: true

module Memscope
  module Launch
    # Reports the ledger, or other readings, of the program that loads this file, when the program ends and at
    # intervals. memscope itself is not loaded before the first report: until then the program runs undisturbed.
    class ProgramReport
      # @param order [Handoff::Order] title, every, output, json, reading (names of calls), options of these calls
      #   or of the ledger, by and limit (of a census), and those of Order#display
      def initialize(order)
        @order = order
        @title = order["title"]
        @options = order["options"].to_s.split.to_h { |name| [name.to_sym, true] }
        @pid = Process.pid
        @started = now
        @turn = Thread::Mutex.new
        @ended = false
        @io = order.output
      end

      # To be called before the program registers its own at_exit handlers: the first one registered runs last. Forked
      # processes do not report.
      def start
        return check_settings if @order["reading"] == "lint"

        at_exit { report(ending: true) if Process.pid == @pid }
        @order.background { repeat(Float(@order["every"])) } if @order["every"]
      end

      private

      # Reads the settings before the script runs. JSON is written at the end: loading the library json at the start
      # could preempt the program's own version of it.
      def check_settings
        @order.load_memscope
        @lint = Memscope.lint
        return report(ending: true) unless @order["json"]

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
        return @io.write(readings.map { |reading| "#{reading.to_json}\n" }.join) if @order["json"]

        @io.write(heading(ending)) if @order["every"]
        @io.write(readings.map { |reading| reading.to_s(**@order.display(@io), **view) }.join("\n"))
        @io.write("\n") if @order["every"] && !ending
      end

      def readings
        return [@lint] if @lint
        return [Memscope.dump(@order["dump"], format: @order["format"].to_sym)] if @order["dump"]
        # Later diagnoses judge growth since the first one.
        return [Memscope.doctor(since: @first).tap { |diagnosis| @first ||= diagnosis }] if @title == "doctor"
        return [Memscope.ledger(**@options)] unless @order["reading"]

        @order["reading"].split.map { |name| Memscope.public_send(name, **@options, **asked) }
      end

      # What a heap graph is asked.
      def asked
        return {} unless @order["reading"] == "heap_graph"

        { top: Integer(@order["limit"]), paths_to: @order["paths_to"], in: @order["in"].to_sym }
      end

      # What a census shows.
      def view = @order["by"] ? { by: @order["by"].to_sym, limit: Integer(@order["limit"]) } : {}

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def heading(ending) = "memscope #{@title}: #{'at the end, ' if ending}after #{(now - @started).round(1)} s\n\n"
    end
  end
end
