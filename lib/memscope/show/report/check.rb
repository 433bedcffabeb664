# frozen_string_literal: true

module Memscope
  module Report
    # A check: the verdict, and what grows, with its places and retainers; of an application also the memory in use
    # after each round.
    class CheckPage < ReadingPage
      HEADINGS = ["requests", "objects", "slots MiB", "malloc MiB", "RSS MiB"].freeze
      ARROWS = { true => " → ", false => " -> " }.freeze
      # Names of growth that has no class.
      NAMELESS = { malloc: %w[blocks malloc], objects: ["objects", "several classes"] }.freeze
      PLACES = { child: "in a forked child", process: "in this process" }.freeze
      private_constant :HEADINGS, :ARROWS, :NAMELESS, :PLACES

      private

      def title = ([super, @page.joined(["GET #{@reading.path}", @reading.target])] if @reading.path)

      def subject
        ["RAILS_ENV #{@reading.environment}#{' (default)' if @reading.reasons.key?(:environment)}", *super]
      end

      def sections
        curve = [table, rise] if @reading.path && @reading.points.any?
        [*curve, @page.wrapped(verdict), *@reading.grown.map { |one| lines(one) }, remedy, expired]
      end

      def table
        rows = @reading.points.map do |point|
          bytes = [point.slot_bytes, point.malloc_bytes, point.rss_bytes].map { |number| cell(number) }
          [count(point.iterations), count(point.objects), *bytes]
        end
        @page.table(HEADINGS, rows)
      end

      # The growth per request over the rounds that are judged.
      def rise
        return unless (objects = @reading.per_iteration(:objects))

        slots, malloc, rss = %i[slot_bytes malloc_bytes rss_bytes].map { |name| bytes(@reading.per_iteration(name)) }
        @page.wrapped("Each of the last #{count(@reading.judged_iterations)} requests added " \
                      "#{format('%+.1f', objects)} objects, slots #{slots}, malloc #{malloc}, RSS #{rss}.")
      end

      def bytes(number) = number ? "#{signed(number.round)} B" : @page.unknown

      def each = @reading.path ? "request" : "iteration"

      def verdict
        case @reading.verdict
        when :steady then steady
        when :step then "Step: objects rose in #{rounds}, but not in each."
        when :filling then "Filling: memory grows, but less and less, in each of #{rounds}:"
        else "Leak: memory grows in each of #{rounds}:"
        end
      end

      # Growth of malloc memory that the counts of objects and blocks do not show comes in steps.
      def steady
        return "Steady: nothing grows in #{rounds}." unless @reading.uncounted_bytes

        "Steady: nothing grows by one per #{each} in #{rounds}, but malloc does, by " \
          "#{counted(@reading.uncounted_bytes, 'bytes')}: a String, an Array or a Hash that is kept may grow, or " \
          "something leaks less often. If #{longer} shows as much per #{each}, it is a leak."
      end

      def rounds
        judged = "the last #{@reading.runs} rounds of #{counted(@reading.iterations, "#{each}s")}"
        return judged if @reading.path
        return "#{counted(@reading.total_iterations, 'iterations')}, #{PLACES[@reading.ran_in]}" unless @reading.grows?

        "#{judged}, after #{counted(@reading.warmup_iterations, 'iterations')} of " \
          "warm-up, #{PLACES[@reading.ran_in]}"
      end

      def lines(grown)
        ["  +#{amount(grown)} per #{each} " \
         "(#{grown.growth.map { |number| count(number) }.join(', ')})",
         *grown.places.map { |place| "    allocated at #{short(place)}: #{share(place)}" },
         *("    held by #{grown.held_by.join(ARROWS[@page.unicode?])}" if grown.held_by)]
      end

      def amount(grown)
        return "#{count(grown.per_iteration)} #{grown.name}" if grown.name

        noun, kind = NAMELESS.fetch(grown.layer)
        "#{counted(grown.per_iteration, noun)} of #{kind}"
      end

      # Relative to the working directory, as test frameworks show files.
      def short(place) = place.to_s.delete_prefix("#{Dir.pwd}/")

      def share(place) = "#{count(place.count)} are left of the last rounds, #{size(place.bytes)}"

      def remedy
        return unless @reading.grows?

        names = @reading.grown.filter_map { |one| one.layer == :malloc ? ":malloc" : one.name&.inspect }
        allow = " To allow it: ignore: [#{names.join(', ')}], or max: " \
                "#{@reading.grown.map(&:per_iteration).max}."
        @page.wrapped("It is a leak, or a cache that is still filling: #{longer} tells.#{allow unless @reading.path}")
      end

      def longer = @reading.path ? "--requests=#{@reading.longer_iterations}" : "warmup: #{@reading.longer_iterations}"

      def expired
        names = @reading.expired.join(", ")
        @page.wrapped("Released some seconds after the last request, so not growth: #{names}.") unless names.empty?
      end

      def reasons = unavailable(@reading.reasons.except(:environment))

      def footer = nil
    end
  end
end
