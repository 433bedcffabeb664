# frozen_string_literal: true

module Memscope
  module Web
    # Charts as SVG whose sizes are attributes: no style, no script. Unused memory is hatched, with the pattern #held of
    # the page's layout.
    #
    # @api private
    module Drawing
      # Heights, in pixels.
      BAR = 56
      METER = 10
      # Widths of a part, in percent of the bar: from LEGIBLE on, its number fits on a phone; from WIDE on, there is
      # room to spare.
      LEGIBLE = 4
      WIDE = 10
      # Decimals of a percentage: the percentages of a bar sum to exactly 100.
      DECIMALS = 4
      HATCHED = 'fill="url(#held)"'
      private_constant :BAR, :METER, :LEGIBLE, :WIDE, :DECIMALS, :HATCHED

      # One part of a bar. `held_bytes` of its bytes are unused.
      Part = Struct.new(:id, :mark, :bytes, :held_bytes)

      module_function

      # Parts side by side, 100 % wide together.
      #
      # @param parts [Array<Part>]
      # @param label [String] its content in words, for screen readers
      # @return [Markup]
      def bar(parts, label:)
        total = parts.sum(&:bytes)
        edges = parts.reduce([0]) { |sums, part| [*sums, sums.last + part.bytes] }
        edges = edges.map { |sum| total.zero? ? 0.0 : (100.0 * sum / total).round(DECIMALS) }
        drawn = parts.zip(edges.each_cons(2)).map { |part, (left, right)| segment(part, left, right - left) }
        svg("bar", BAR, %(role="img" aria-label="#{Markup.of(label)}"), drawn.join)
      end

      # A share of a whole: used memory is solid, unused memory beside it is hatched.
      #
      # @param used [Numeric] share from 0 to 1
      # @param held [Numeric] unused, share from 0 to 1
      # @param id [Symbol] the ledger row whose colour the meter has
      # @return [Markup]
      def meter(used, held = 0, id: :malloc)
        solid, hatched = [used, held].map { |share| (100.0 * share.clamp(0, 1)).round(DECIMALS) }
        svg("meter", METER, 'aria-hidden="true"',
            rect("track", 0, 100, METER) + rect("fill #{row_class(id)}", 0, solid + hatched, METER) +
            rect("held", solid, hatched, METER, HATCHED))
      end

      # @param id [Symbol] the id of a ledger row
      # @return [String] the CSS class of the row's colour
      def row_class(id) = "row-#{id.to_s[/\A\w+/]}"

      def segment(part, left, width)
        held = part.bytes.zero? ? 0 : width * part.held_bytes / part.bytes
        drawn = rect("fill segment #{row_class(part.id)}", left, width, BAR, %(data-row="#{Markup.of(part.id)}")) +
                rect("held", left + width - held, held, BAR, HATCHED)
        width < LEGIBLE || part.mark.nil? ? drawn : drawn + number(part, left, width)
      end

      # The part's number: in the middle, or at the left if the part is wide.
      def number(part, left, width)
        place = width < WIDE ? %(x="#{percent(left + (width / 2))}") : %(x="#{percent(left)}" dx="16")
        %(<text class="mark #{row_class(part.id)}" #{place} y="#{BAR / 2}" text-anchor="middle" ) +
          %(dominant-baseline="central">#{Markup.of(part.mark)}</text>)
      end

      def rect(classes, left, width, height, attributes = nil)
        return "" unless width.positive? || classes.include?("segment")

        %(<rect class="#{classes}" x="#{percent(left)}" width="#{percent(width)}" height="#{height}" #{attributes}/>)
      end

      def percent(number) = "#{format("%.#{DECIMALS}f", number)}%"

      def svg(classes, height, attributes, body)
        Markup.new(%(<svg class="#{classes}" width="100%" height="#{height}" #{attributes}>#{body}</svg>))
      end
    end
  end
end
