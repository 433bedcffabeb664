# frozen_string_literal: true

module Memscope
  module Web
    # Charts as SVG whose sizes are attributes: no style, no script. Unused memory is hatched, with the pattern #held of
    # the page's layout.
    #
    # @api private
    module Drawing
      # Pixels.
      HEIGHT = 10
      private_constant :HEIGHT

      module_function

      # A share of a whole: used memory is solid, unused memory beside it is hatched.
      #
      # @param used [Numeric] share from 0 to 1
      # @param held [Numeric] unused, share from 0 to 1
      # @param id [Symbol] the ledger row whose colour the meter has
      # @return [Markup]
      def meter(used, held = 0, id: :malloc)
        solid, hatched = [used, held].map { |share| 100.0 * share.clamp(0, 1) }
        drawn = rect("track", 0, 100) + rect("fill row-#{id.to_s[/\A\w+/]}", 0, solid + hatched) +
                rect("held", solid, hatched, 'fill="url(#held)"')
        Markup.new(%(<svg class="meter" width="100%" height="#{HEIGHT}" aria-hidden="true">#{drawn}</svg>))
      end

      def rect(classes, left, width, attributes = nil)
        return "" unless width.positive?

        left, width = [left, width].map { |number| format("%.4f%%", number) }
        %(<rect class="#{classes}" x="#{left}" width="#{width}" height="#{HEIGHT}" #{attributes}/>)
      end
    end
  end
end
