# frozen_string_literal: true

module Memscope
  module Web
    module Pages
      # The last census and the last heap graph that were taken on this page, or by `memscope census` and `memscope
      # heap`. Both are kept in the process that was counted.
      # @api private
      class Objects < Page
        READINGS = %i[census heap].freeze
        # Headings by grouping of the census (by=type).
        GROUPINGS = { class: "Class", type: "Type", imemo: "Internal kind", slot_size: "Slot bytes", age: "Age" }.freeze
        # Rows of the table of a census. JSON has all.
        MAX_ROWS = 100

        def census = censuses.last

        def heap = kept(:heap, :heap_graph).last

        # @return [Array<Report::ReadingPage>] the growth since the census before, if there is one, and the census
        def counts
          return [] unless census&.known?

          growth = Report.page(census - censuses.first, by: by, limit: 20) if censuses.size > 1
          [*growth, Report.page(census, by: by, limit: MAX_ROWS)]
        end

        def by = choice("by", GROUPINGS.keys, :class)

        # @return [String] the class in the form's field, from the query or the posted form; empty: any
        def paths_to = form["paths_to"]&.last.to_s

        # The page's tables of the heap graph: rendered once, since it is kept.
        def tables(&) = @processes.fetch(:rendered, @request.base, place.pid, heap.at, &)

        def to_s(**)
          found = super
          found.empty? ? "No census and no heap graph was taken in #{place}.\n" : found
        end

        private

        def censuses = kept(:census, :censuses)

        def kept(name, kept) = @taken[name] ||= @processes.kept(place, kept)
      end
    end
  end
end
