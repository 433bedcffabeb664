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
      private_constant :BAR, :METER

      module_function

      # Rows side by side, 100 % wide together.
      #
      # @param sizes [Hash{Symbol => Integer}] bytes by row
      # @param label [String] its content in words, for screen readers
      # @return [Markup]
      def bar(sizes, label:)
        whole = [sizes.values.sum, 1].max
        left = 0
        drawn = sizes.map do |id, bytes|
          from, width = [left, bytes].map { |part| 100.0 * part / whole }
          left += bytes
          rect("fill segment row-#{Markup.of(id)}", from, width, BAR)
        end
        svg("bar", BAR, %(role="img" aria-label="#{Markup.of(label)}"), drawn.join)
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
            rect("held", solid, hatched, METER, 'fill="url(#held)"'))
      end

      def rect(classes, left, width, height, attributes = nil)
        return "" unless width.positive?

        left, width = [left, width].map { |number| format("%.4f%%", number) }
        %(<rect class="#{classes}" x="#{left}" width="#{width}" height="#{height}" #{attributes}/>)
      end

      def svg(classes, height, attributes, body)
        size = %(width="100%" height="#{height}")
        Markup.new(%(<svg class="#{classes}" #{size} #{attributes}>#{body}</svg>))
      end
    end
  end
end
