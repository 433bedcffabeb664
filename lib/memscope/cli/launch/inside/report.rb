# frozen_string_literal: true

module Memscope
  module Launch
    # Reports the ledger, or other readings, of the program when it ends and at intervals. memscope itself is loaded
    # when the first report needs it: until then the program runs undisturbed.
    class ProgramReport < Inside
      # @param order [Hash{Symbol => Object}] as for Inside, and every, json, view (options of Reading#to_s); calls (of
      #   Memscope, with their options), or dump (a path) and format
      def initialize(order)
        super
        @started = now
      end

      def start
        report_at_exit
        every = @order[:every] or return
        background("report") { loop { sleep(every) && report(ending: false) } }
      end

      private

      def write(ending)
        load_memscope
        return @io.write(readings.map { |reading| "#{reading.to_json}\n" }.join) if @order[:json]

        at = worded(ending ? :at_the_end : :after, title: @order[:title], seconds: (now - @started).round(1))
        @io.write("#{at}\n\n") if @order[:every]
        pages = readings.map { |reading| reading.to_s(**@order[:display].to_h, **@order[:view].to_h) }
        @io.write(dated(pages.join("\n")))
        @io.write("\n") unless ending
      end

      def readings
        return [Memscope.dump(@order[:dump], format: @order[:format])] if @order[:dump]

        @order[:calls].map do |name, options|
          name == :doctor ? diagnose(**options) : Memscope.public_send(name, **options)
        end
      end

      # Later diagnoses judge growth since the first one.
      def diagnose(**options) = Memscope.doctor(since: @first, **options).tap { |one| @first = one if @first.nil? }

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
