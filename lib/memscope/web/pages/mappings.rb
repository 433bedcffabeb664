# frozen_string_literal: true

require_relative "../../report"
require_relative "page"

module Memscope
  module Web
    module Pages
      # Every mapping with resident memory, the largest first, by owner.
      #
      # @api private
      class Mappings < Page
        shows "Mappings", :mappings

        # Rows of the table; what is smaller is summed up. JSON and text have all.
        MOST = 50
        private_constant :MOST

        # @return [Memscope::Mappings]
        def reading = @reading ||= read(:mappings)

        # @return [String]
        def text = Memscope::Report.render(reading)

        # @return [Array<Mapping>]
        def shown = resident.first(MOST)

        # @return [Array<Mapping>]
        def others = resident.drop(MOST)

        # @return [Array(Symbol, Integer)] the rows that own it, the largest first
        def owners(mapping) = mapping.rows.sort_by { |_path, bytes| -bytes }

        private

        def resident
          @resident ||= reading.reject { |one| one.resident_bytes.zero? }
                               .sort_by { |one| [-one.resident_bytes, one.start] }
        end
      end
    end
  end
end
