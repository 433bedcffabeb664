# frozen_string_literal: true

module Memscope
  class Verdict < Reading
    # The layers of a process's memory, from the floors of its history. Pure.
    #
    # The layers are differences of floors, and so sum to the RSS: what objects hold is subtracted from malloc's memory
    # in use, and the memory in use from malloc's row. A layer with a part that is unknown is left out, and its growth
    # counts as unattributed.
    #
    # @api private
    class Layers
      # The layers, in the order in which the extension numbers them.
      NAMES = %i[objects native fragmentation threads code copy_on_write unattributed].freeze
      CODE = %i[files jit ruby_internal].freeze
      private_constant :CODE

      # @return [Hash{Symbol => String}] why layers, or parts of them, are unknown
      attr_reader :reasons

      # @param floors [Floors]
      def initialize(floors)
        @floors = floors
        @reasons = {}
      end

      # @return [Array<Array<Integer>, nil>] in the order of NAMES; nil for an unknown layer
      def series
        held, native = malloc_in_use
        [sum(floor(:objects, :live_bytes), *([held] if held)), native, fragmentation, floor(:threads, :stacks),
         sum(*CODE.map { |row| floor(:code, row) }), copy_on_write, nil]
      end

      private

      # What objects hold of malloc's memory in use, and the rest.
      def malloc_in_use
        held = floor(:objects, :held)
        in_use = floor(:native, :malloc_in_use)
        return [held, floor(:native, :held)] unless held && in_use

        held = since_last_walk(held, in_use, @floors.latest(:held))
        [held, difference(in_use, held)]
      end

      # Assumes that objects hold the same share of the memory that came into use after the last walk as of the memory
      # that came into use before it.
      def since_last_walk(held, in_use, walk)
        came = in_use[walk] - in_use.first
        share = came.zero? ? 0 : (held[walk] - held.first).fdiv(came).clamp(0, 1)
        later = in_use.drop(walk + 1).map { |floor| held[walk] + ((floor - in_use[walk]) * share).round }
        [*held.first(walk + 1), *later.map { |floor| [floor, 0].max }]
      end

      # What is free in malloc, and what is free in Ruby's heap: either part may be unknown.
      def fragmentation
        known = { malloc: :malloc_in_use, ruby_heap: :live_bytes }.filter_map do |row, used|
          difference(floor(:fragmentation, row), floor(:fragmentation, used))
        end
        sum(*known) unless known.empty?
      end

      # Growth of private memory beyond the growth of RSS: pages that were shared after the fork, and no longer are.
      def copy_on_write
        return unless @floors.forked?

        own = floor(:copy_on_write, :uss) or return
        first = own.first - @floors[:rss].first
        own.zip(@floors[:rss]).map { |uss, rss| [uss - rss - first, 0].max }
      end

      def floor(layer, name)
        @reasons[layer] ||= @floors.reason(name) unless @floors[name]
        @floors[name]
      end

      def sum(*series) = series.include?(nil) ? nil : series.transpose.map(&:sum)

      def difference(all, part) = all && part && all.zip(part).map { |one, other| [one - other, 0].max }
    end
  end
end
