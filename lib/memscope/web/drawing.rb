# frozen_string_literal: true

module Memscope
  module Web
    # Charts as SVG whose sizes are attributes: no style, no script. Unused memory is hatched, with the pattern #held of
    # the page's layout.
    # @api private
    module Drawing
      # Heights, in pixels.
      BAR = 56
      METER = 10
      # The least width, in percent, on which a number fits on a phone.
      LEGIBLE = 4
      HATCHED = 'fill="url(#held)"'
      private_constant :BAR, :METER, :LEGIBLE, :HATCHED

      module_function

      # Rows side by side, 100 % wide together.
      #
      # @param branches [Array<Pages::Overview::Branch>]
      # @param label [String] its content in words, for screen readers
      # @return [Markup]
      def bar(branches, label:)
        whole = [branches.sum(&:bytes), 1].max
        left = 0
        drawn = branches.map do |one|
          from, width, held = [left, one.bytes, one.held_bytes].map { |bytes| 100.0 * bytes / whole }
          left += one.bytes
          segment(one, from, width, held)
        end
        svg("bar", BAR, %(role="img" aria-label="#{Markup.of(label)}"), drawn.join)
      end

      def segment(branch, left, width, held)
        drawn = rect("fill segment row-#{Markup.of(branch.owner)}", left, width, BAR) +
                rect("held", left + width - held, held, BAR, HATCHED)
        return drawn if width < LEGIBLE

        drawn + %(<text class="mark row-#{Markup.of(branch.owner)}" x="#{percent(left + (width / 2))}" ) +
          %(y="#{BAR / 2}" text-anchor="middle" dominant-baseline="central">#{Markup.of(branch.mark)}</text>)
      end

      # A share of a whole: used memory is solid, unused memory beside it is hatched.
      #
      # @param used [Numeric] share from 0 to 1
      # @param held [Numeric] unused, share from 0 to 1
      # @param id [Symbol] the ledger row whose colour the meter has
      # @return [Markup]
      def meter(used, held = 0, id: :malloc)
        solid, hatched = [used, held].map { |share| 100.0 * share.clamp(0, 1) }
        svg("meter", METER, 'aria-hidden="true"',
            rect("track", 0, 100, METER) + rect("fill row-#{Markup.of(id)}", 0, solid + hatched, METER) +
            rect("held", solid, hatched, METER, HATCHED))
      end

      def rect(classes, left, width, height, attributes = nil)
        return "" unless width.positive?

        place = %(x="#{percent(left)}" width="#{percent(width)}" height="#{height}")
        %(<rect class="#{classes}" #{place} #{attributes}/>)
      end

      def percent(number) = format("%.4f%%", number)

      def svg(classes, height, attributes, body)
        size = %(width="100%" height="#{height}")
        Markup.new(%(<svg class="#{classes}" #{size} #{attributes}>#{body}</svg>))
      end
    end
  end
end
