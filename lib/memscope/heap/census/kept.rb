# frozen_string_literal: true

require_relative "../../value/runtime"

module Memscope
  class Census < Reading
    # The last two censuses that were taken on the web page, or by `memscope census --pid`, kept in the process that was
    # counted, so that any worker of a cluster can show them, and the doctor can name the class that grew.
    #
    # @api private
    module Kept
      class << self
        # @param gc [Boolean] as in Census.read
        # @return [Array<Census>] as `all`
        def take(gc: false) = keep(Census.bounded(gc: gc)).then { all }

        # @param census [Census] of this process
        # @return [Census] the same census
        def keep(census)
          Runtime.current.readings[:class_growth] = most_grown(all.last, census)
          Runtime.current.keep(:censuses, census, most: 2)
        end

        # @return [Array<Census>] the last two censuses of this process, or fewer; the older first
        def all = Runtime.current.kept(:censuses)

        private

        def most_grown(earlier, later)
          return unless earlier&.known? && later.known?

          growth = later - earlier
          row = growth.by(:class).first
          [growth.seconds, (row if row&.change&.positive?), Census.unsized(growth).first(3)]
        end
      end
    end
  end
end
