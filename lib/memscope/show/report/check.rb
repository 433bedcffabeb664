# frozen_string_literal: true

module Memscope
  module Report
    # A check: the verdict, and each growth with its places and retainers. For an application, also the memory in use
    # after each round.
    class CheckPage < ReadingPage
      COLUMNS = { "requests" => :iterations, "objects" => :objects, "slots MiB" => :slot_bytes,
                  "malloc MiB" => :malloc_bytes, "RSS MiB" => :rss_bytes }.freeze
      ARROWS = { true => " → ", false => " -> " }.freeze
      # Names of growth that has no class.
      NAMELESS = { malloc: %w[blocks malloc], objects: ["objects", "several classes"] }.freeze

      private

      def title = ([super, @page.joined(["GET #{@reading.path}", @reading.target])] if @reading.path)

      def subject = ["RAILS_ENV #{@reading.environment}#{' (default)' if @reading.reasons.key?(:environment)}", *super]

      def sections
        curve = [table, rise] if @reading.path && @reading.points.any?
        [*curve, @page.wrapped(verdict), *@reading.grown.map { |one| lines(one) }, remedy, expired]
      end

      def table = @page.table(COLUMNS.keys, @reading.points.map { |point| cells_of(point, COLUMNS.values) })

      # The growth per request over the rounds that are judged.
      def rise
        return unless (objects = @reading.per_iteration(:objects))

        bytes = { slots: :slot_bytes, malloc: :malloc_bytes, rss: :rss_bytes }.transform_values do |name|
          @reading.per_iteration(name)&.then { |number| "#{signed(number.round)} B" } || @page.unknown
        end
        say(:rise, requests: count(@reading.judged_iterations), objects: format("%+.1f", objects), **bytes)
      end

      def each = @reading.path ? "request" : "iteration"

      def verdict
        verdict = @reading.uncounted_bytes && @reading.verdict == :steady ? :uncounted : @reading.verdict
        text(:"check.#{verdict}", rounds: rounds, each: each, longer: longer,
                                  bytes: counted(@reading.uncounted_bytes, "bytes"))
      end

      def rounds
        judged = text(:rounds, runs: @reading.runs, each: counted(@reading.iterations, "#{each}s"))
        return judged if @reading.path

        place = text(@reading.ran_in == :child ? :in_a_child : :in_this_process)
        return "#{counted(@reading.total_iterations, 'iterations')}, #{place}" unless @reading.grows?

        text(:after_warmup, rounds: judged, warmup: counted(@reading.warmup_iterations, "iterations"), place: place)
      end

      def lines(grown)
        ["  +#{amount(grown)} per #{each} (#{grown.growth.map { |number| count(number) }.join(', ')})",
         *grown.places.map { |place| "    #{origin(place)}" },
         *("    held by #{grown.held_by.join(ARROWS[@page.unicode?])}" if grown.held_by)]
      end

      def amount(grown)
        noun, kind = NAMELESS[grown.layer] unless grown.name
        kind ? "#{counted(grown.per_iteration, noun)} of #{kind}" : "#{count(grown.per_iteration)} #{grown.name}"
      end

      # Files are relative to the working directory, as test frameworks show them.
      def origin(place)
        text(:origin, place: place.to_s.delete_prefix("#{Dir.pwd}/"), number: count(place.count),
                      bytes: size(place.bytes))
      end

      def remedy
        return unless @reading.grows?

        names = @reading.grown.filter_map { |one| one.layer == :malloc ? ":malloc" : one.name&.inspect }
        say(@reading.path ? :leak_or_cache : :leak_or_allow,
            longer: longer, names: names.join(", "), most: @reading.grown.map(&:per_iteration).max)
      end

      def longer = @reading.path ? "--requests=#{@reading.longer_iterations}" : "warmup: #{@reading.longer_iterations}"

      def expired = (say(:expired, names: @reading.expired.join(", ")) if @reading.expired.any?)

      def reasons = unavailable(@reading.reasons.except(:environment))

      def footer = nil
    end
  end
end
