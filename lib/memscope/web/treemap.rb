# frozen_string_literal: true

module Memscope
  module Web
    # Tiles whose areas are in proportion to their bytes, as SVG without style or script. They are nearly square on a
    # wide screen (Bruls, Huizing and van Wijk, Squarified Treemaps, 2000).
    #
    # @api private
    class Treemap
      # One tile: a kind, which sets its colour; a mark and the id of the element that the tile links to, or nil for
      # both; a name.
      Tile = Struct.new(:kind, :mark, :target, :name, :bytes)

      # In pixels: the height, and the width for which tiles are laid out.
      HEIGHT = 320.0
      WIDTH = 1000.0
      # The least width and height of a tile that shows its mark, on a phone too, and of one that shows its name.
      MARKED = [52, 24].freeze
      NAMED = [120, 56].freeze
      LINE = 20
      private_constant :HEIGHT, :WIDTH, :MARKED, :NAMED, :LINE

      # @param tiles [Array<Tile>] of more than 0 bytes
      def initialize(tiles)
        @tiles = tiles.sort_by { |tile| -tile.bytes }
        @scale = WIDTH * HEIGHT / tiles.sum(&:bytes)
      end

      # @param label [String] the treemap's content in words
      # @return [Markup]
      def drawn(label:)
        body = squarified(@tiles, [0.0, 0.0, WIDTH, HEIGHT]).map { |tile, rectangle| linked(tile, rectangle) }.join
        Drawing.svg("treemap", HEIGHT.to_i, %(role="group" aria-label="#{Markup.of(label)}"), body)
      end

      private

      # Fills a rectangle row by row, each row along the shorter side of the rectangle that is left.
      def squarified(tiles, rectangle)
        return [] if tiles.empty?

        left, top, width, height = rectangle
        side = [width, height].min
        row = tiles.first((1..tiles.size).min_by { |count| worst(tiles.first(count), side) })
        depth = area(*row) / side
        rest = width < height ? [left, top + depth, width, height - depth] : [left + depth, top, width - depth, height]
        [*laid(row, rectangle, depth), *squarified(tiles.drop(row.size), rest)]
      end

      def area(*tiles) = tiles.sum(&:bytes) * @scale

      # The greatest aspect ratio among the tiles of a row.
      def worst(row, side)
        depth = area(*row) / side
        row.map { |tile| area(tile) / depth / depth }.map { |ratio| [ratio, 1 / ratio].max }.max
      end

      def laid(row, rectangle, depth)
        left, top, width, height = rectangle
        edges = row.reduce([0.0]) { |sums, tile| [*sums, sums.last + (area(tile) / depth)] }
        row.zip(edges.each_cons(2)).map do |tile, (from, to)|
          [tile, width < height ? [left + from, top, to - from, depth] : [left, top + from, depth, to - from]]
        end
      end

      def linked(tile, rectangle)
        inner = nested(tile, rectangle)
        return inner unless tile.target

        name = Markup.of("#{tile.mark}: #{tile.name}, #{Report::Quantity.size(tile.bytes)}")
        %(<a href="##{tile.target}" aria-label="#{name}"><title>#{name}</title>#{inner}</a>)
      end

      # A nested svg element, which clips the tile's text.
      def nested(tile, rectangle)
        place = %w[x y width height].zip(rectangle, [WIDTH, HEIGHT] * 2).map do |name, length, whole|
          %(#{name}="#{Drawing.percent(100 * length / whole)}")
        end
        area = Drawing.rect("fill segment tile-#{tile.kind}", 0, 100, "100%")
        %(<svg #{place.join(' ')} aria-hidden="true">#{area}#{texts(tile, *rectangle.last(2))}</svg>)
      end

      def texts(tile, width, height)
        words = [tile.mark] if tile.mark && fits?(MARKED, width, height)
        words = [tile.mark, tile.name, Report::Quantity.size(tile.bytes)].compact if fits?(NAMED, width, height)
        (words || []).map.with_index(1) do |text, line|
          %(<text class="mark#{' wide' unless text == tile.mark}" x="6" y="#{LINE * line}">#{Markup.of(text)}</text>)
        end.join
      end

      def fits?(least, width, height) = width >= least.first && height >= least.last
    end
  end
end
