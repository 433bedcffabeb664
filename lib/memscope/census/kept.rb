# frozen_string_literal: true

require "json"
require_relative "../runtime"

module Memscope
  class Census < Reading
    # The last two censuses that were taken on the web page, or by `memscope census --pid`, kept in the process that was
    # counted, so that any worker of a cluster can show them, and the doctor can name the class that grew. As JSON, they
    # take a tenth of the memory that Census objects would take, and add hardly any object to the next census.
    #
    # @api private
    module Kept
      class << self
        # @param gc [Boolean] as in Census.read
        # @return [Integer, nil] objects; nil if they could not be walked
        def take(gc: false) = keep(Census.bounded(gc: gc)).total_count

        # @param census [Census] of this process
        # @return [Census] the same census
        def keep(census)
          Runtime.current.readings.update(
            class_growth: most_grown(own.last&.then { |json| Census.from_json(json) }, census),
            censuses: [*own.last(1), census.to_json.freeze].freeze
          )
          census
        end

        # @return [Array(Float, Growth::Row, Array<Growth::Row>), nil] the seconds between the last two censuses; the
        #   class that grew most in bytes, nil if none grew; and the first three of Growth#unsized. nil without two
        def grown = Runtime.current.readings[:class_growth]

        # @return [Array<Hash>] the last two censuses of this process, or fewer, as plain JSON values; the older first
        def bodies = own.map { |json| JSON.parse(json) }

        private

        def most_grown(earlier, later)
          return unless earlier&.known? && later.known?

          growth = later - earlier
          row = growth.by(:class).max_by(&:memsize_bytes)
          [growth.seconds, (row if row&.memsize_bytes&.positive?), growth.unsized.first(3)]
        end

        def own = Runtime.current.readings.fetch(:censuses, [])
      end
    end
  end
end
