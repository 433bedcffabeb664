# frozen_string_literal: true

require_relative "started"

module Memscope
  module Launch
    # Reports the ledger, or other readings, of the program when it ends and at intervals. memscope itself is loaded
    # when the first report, the history, or a reading from the start needs it: until then the program runs undisturbed.
    class ProgramReport < Started
      # @param order [Hash{Symbol => Object}] as for Started, and every, json, history (whether to keep one), view
      #   (options of Reading#to_s); calls (of Memscope, with their options), or dump (a path) and format
      def initialize(order)
        super
        @started = now
      end

      # @return [void]
      def start
        prepare
        report_at_exit
        background("report") { repeat(@order[:every]) } if @order[:every]
      end

      private

      # Begins what a report at the end needs from the start. Settings are read before the script runs; their JSON is
      # written at the end, since the library json, loaded at the start, could preempt the program's own version of it.
      def prepare
        if calls.key?(:lint) then check_settings
        elsif calls.key?(:requires) then record
        elsif @order[:history]
          load_memscope
          Memscope::History.start
        end
      rescue StandardError, ScriptError, NoMemoryError => e
        @ended = true unless @order[:history]
        complain("no #{@order[:history] ? 'history' : 'report'}: #{e.message} (#{e.class})")
      end

      def check_settings
        load_memscope
        @first = Memscope.lint
        report(ending: true) unless @order[:json]
      end

      def record
        load_memscope
        require_relative "require_costs"
        @costs = RequireCosts.new
        why = @costs.start or return
        @ended = true
        complain("no report: #{why}")
      end

      def calls = @order[:calls].to_h

      def repeat(seconds)
        loop do
          sleep(seconds)
          report(ending: false)
        end
      end

      def write(ending)
        load_memscope
        return @io.write(readings.map { |reading| "#{reading.to_json}\n" }.join) if @order[:json]

        @io.write(heading(ending)) if @order[:every]
        @io.write(readings.map { |reading| reading.to_s(**display, **view) }.join("\n"))
        @io.write(ending ? curve : "\n") unless @order[:dump]
      end

      def view = @order[:view].to_h

      # The memory over time, if the program has kept its history.
      def curve
        return "" if view[:markdown] || Memscope.autoload?(:History) || !Memscope::History.running?

        lines = Memscope::Report.page(Memscope.history, **display).lines
        lines.empty? ? "" : ["", *lines, ""].join("\n")
      end

      def readings
        return [Memscope.dump(@order[:dump], format: @order[:format])] if @order[:dump]

        calls.map do |name, options|
          case name
          when :lint then @first
          when :requires then @costs.finish
          when :doctor then diagnose
          else Memscope.public_send(name, **options)
          end
        end
      end

      # Later diagnoses judge growth since the first one.
      def diagnose
        diagnosis = Memscope.doctor(since: @first)
        @first ||= diagnosis
        diagnosis
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def heading(ending)
        "memscope #{@order[:title]}: #{'at the end, ' if ending}after #{(now - @started).round(1)} s\n\n"
      end
    end
  end
end
