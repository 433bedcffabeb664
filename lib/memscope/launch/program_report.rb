# frozen_string_literal: true

require_relative "in_program"

module Memscope
  module Launch
    # The ledger, or another reading, of the program that this is loaded into: when it ends, and at intervals. memscope
    # itself is loaded for the first report only, unless the program has done so: until then the program runs as it
    # would without.
    class ProgramReport
      include InProgram

      # @param order [Hash{String => String}] every, output, json, reading (names of calls), the ledger's options, and
      #   where memscope is
      def initialize(order)
        @order = order
        @title = order["reading"] == "doctor" ? "doctor" : "report"
        @options = order["options"].split.to_h { |name| [name.to_sym, true] }
        @pid = Process.pid
        @started = now
        @turn = Thread::Mutex.new
        @ended = false
        @io = destination
      end

      # To be called before the program registers handlers of its own: what is registered first runs last. Only this
      # process reports, no fork of it.
      def start
        at_exit { report(ending: true) if Process.pid == @pid }
        background { repeat(Float(@order["every"])) } if @order["every"]
      end

      private

      def repeat(seconds)
        loop do
          sleep(seconds)
          report
        end
      end

      # A program ends as it would without, whatever goes wrong here.
      def report(ending: false)
        @turn.synchronize do
          break if @ended

          @ended = ending
          write(ending)
        end
      rescue StandardError, ScriptError, NoMemoryError => e
        complain("nothing read: #{e.message} (#{e.class})")
      end

      def write(ending)
        load_memscope
        return @io.write(readings.map { |reading| "#{reading.to_json}\n" }.join) if @order.key?("json")

        @io.write(heading(ending)) if @order["every"]
        @order["reading"] ? @io.write(readings.join("\n")) : Memscope.report(@io, **@options)
        @io.write("\n") if @order["every"] && !ending
      end

      def readings
        return [diagnosis] if @title == "doctor"
        return [Memscope.ledger(**@options)] unless @order["reading"]

        @order["reading"].split.map { |name| Memscope.public_send(name) }
      end

      # Growth is since the first.
      def diagnosis
        diagnosis = Memscope.doctor(since: @first)
        @first ||= diagnosis
        diagnosis
      end

      def heading(ending) = "memscope #{@title}: #{'at the end, ' if ending}after #{(now - @started).round(1)} s\n\n"
    end
  end
end
