# frozen_string_literal: true

require_relative "growth_check"

module Memscope
  module Report
    # An exercise: what was in use after each round, its growth per request, the verdict, and what grows.
    class ExercisePage < ReadingPage
      include GrownLines

      HEADINGS = ["requests", "objects", "slots MiB", "malloc MiB", "RSS MiB"].freeze
      private_constant :HEADINGS

      private

      def title
        [@page.joined(["memscope #{@reading.memscope}", "ruby #{@reading.ruby}", *where]),
         @page.joined(["GET #{@reading.path}", @reading.target, counted(@reading.threads, "threads")])]
      end

      def where
        default = " (default)" if @reading.reasons.key?(:environment)
        ["RAILS_ENV #{@reading.environment}#{default}", "pid #{@reading.pid}"]
      end

      def sections = [curve, growth, *verdict, *expired]

      def curve
        rows = @reading.points.map do |point|
          bytes = [point.slot_bytes, point.malloc_bytes, point.rss_bytes].map { |number| cell(number) }
          [count(point.requests), count(point.objects), *bytes]
        end
        @page.table(HEADINGS, rows) if rows.any?
      end

      # The growth per request over the rounds that are judged.
      def growth
        return unless @reading.judged_requests

        objects, *sizes = %i[objects slot_bytes malloc_bytes rss_bytes].map { |name| @reading.per_request(name) }
        slots, malloc, rss = sizes.map { |size| bytes(size) }
        last = "Each of the last #{count(@reading.judged_requests)} requests added"
        @page.wrapped("#{last} #{format('%+.1f', objects)} objects, slots #{slots}, malloc #{malloc}, RSS #{rss}.")
      end

      def bytes(number) = number ? "#{signed(number.round)} B" : @page.unknown

      def verdict
        case @reading.verdict
        when :steady then [@reading.uncounted_bytes ? uncounted : "  Nothing grows in #{rounds}."]
        when :filling then ["  Memory grows, but less and less, in each of #{rounds}:", *grown, telling("is still")]
        when :grows then ["  Memory grows in each of #{rounds}:", *grown, telling("each request is still")]
        else ["  No verdict."]
        end
      end

      def expired
        names = @reading.check&.expired.to_a
        return if names.empty?

        @page.wrapped("Released some seconds after the last request, by a timer or by a thread that ended, so not " \
                      "growth: #{names.join(', ')}.")
      end

      # Growth of malloc memory that the counts of objects and blocks do not show; it comes in steps.
      def uncounted
        bytes = counted(@reading.uncounted_bytes, "bytes")
        @page.wrapped("Nothing grows by one per request in #{rounds}, but malloc does, by #{bytes}: a String, an " \
                      "Array or a Hash that is kept may grow (a log in memory, a list of numbers), or something " \
                      "leaks less often. If --requests=#{@reading.longer_requests} shows as much per request, it is " \
                      "a leak.")
      end

      def rounds = "the last #{@reading.check.runs} rounds of #{counted(@reading.check.iterations, 'requests')}"

      def grown = @reading.check.grown.map { |one| lines(one, "per request") }

      def telling(fills)
        @page.wrapped("It is a leak, or a cache that #{fills} filling: --requests=#{@reading.longer_requests} tells.")
      end

      def reasons
        own = @reading.reasons
        others = @reading.check&.reasons.to_h.reject { |_id, why| own.value?(why) }
        unavailable({ **own, **others }.except(:environment))
      end

      def footer = nil
    end
  end
end
