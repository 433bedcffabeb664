# frozen_string_literal: true

module Memscope
  module Report
    # What has grown, as text: by how much, where it was allocated, what holds it.
    module GrownLines
      ARROWS = { true => " → ", false => " -> " }.freeze
      # Names for what has no class.
      NAMELESS = { malloc: %w[blocks malloc], objects: ["objects", "several classes"] }.freeze
      private_constant :ARROWS, :NAMELESS

      private

      # @param grown [GrowthCheck::Grown]
      # @param each [String] "per iteration", "per request"
      # @return [Array<String>]
      def lines(grown, each)
        ["  #{amount(grown, each)}", *grown.places.map { |place| "    allocated at #{short(place)}: #{share(place)}" },
         *("    held by #{held_by(grown)}" if grown.held_by)]
      end

      def amount(grown, each)
        growth = grown.growth.map { |number| count(number) }
        "+#{amount_of(grown)} #{each} (#{growth.join(', ')})"
      end

      def amount_of(grown)
        return "#{count(grown.per_iteration)} #{grown.name}" if grown.name

        noun, kind = NAMELESS.fetch(grown.layer)
        "#{counted(grown.per_iteration, noun)} of #{kind}"
      end

      # Relative to the working directory, as test frameworks show files.
      def short(place) = place.to_s.delete_prefix("#{Dir.pwd}/")

      def share(place) = "#{count(place.count)} are left of the last rounds, #{size(place.bytes)}"

      def held_by(grown) = grown.held_by.join(ARROWS[@page.unicode?])
    end

    # What grows, by how much per iteration, where it was allocated, what holds it, and how to allow the growth.
    class GrowthCheckPage < ReadingPage
      include GrownLines

      PLACES = { child: "in a forked child", process: "in this process" }.freeze
      private_constant :PLACES

      private

      def title
        place = PLACES[@reading.ran_in]
        return "memory does not grow: #{iterations(@reading.total_iterations)}, #{place}" unless @reading.grows?

        ["memory grows in each of #{@reading.runs} rounds of #{iterations(@reading.iterations)},",
         "after #{iterations(@reading.warmup_iterations)} of warm-up, #{place}"]
      end

      def iterations(number) = counted(number, "iterations")

      def sections = [*@reading.grown.map { |one| lines(one, "per iteration") }, remedy]

      def remedy
        return unless @reading.grows?

        names = @reading.grown.filter_map { |one| one.layer == :malloc ? ":malloc" : one.name&.inspect }
        @page.wrapped("It is a leak, or a cache that is still filling: for a cache, warmup: " \
                      "#{10 * @reading.total_iterations} runs the block that often before anything is judged. To " \
                      "allow it: ignore: [#{names.join(', ')}], or max: #{@reading.grown.map(&:per_iteration).max}.")
      end

      def footer = nil
    end
  end
end
