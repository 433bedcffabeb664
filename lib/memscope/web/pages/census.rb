# frozen_string_literal: true

module Memscope
  module Web
    module Pages
      # The last census that was taken on this page or by `memscope census --pid`, and what grew since the census before
      # it; both are kept in the process that was counted. The query may choose another grouping (by=type) and another
      # order (sort=objects).
      #
      # @api private
      class Census < Page
        # Headings by grouping.
        GROUPINGS = { class: "Class", type: "Type", imemo: "Internal kind", slot_size: "Slot bytes", age: "Age" }.freeze
        # Each column's heading and field, by the word in the query. A growth needs an earlier census.
        COLUMNS = { "memsize" => ["MiB", :memsize_bytes], "slots" => ["Slots MiB", :slot_bytes],
                    "objects" => ["Objects", :count], "old" => ["Old", :old_count] }.freeze
        GROWTHS = { "growth" => ["+MiB", :memsize_bytes], "more" => ["+Objects", :count] }.freeze
        # Rows of the table; smaller ones are summed up. JSON has all.
        MOST = 100
        private_constant :MOST

        # @return [Memscope::Census, nil] nil if none was taken
        def latest = kept.last

        # @return [Memscope::Census]
        # @raise [HttpError] if none was taken
        def reading
          latest or raise HttpError.new(404, "No census was taken in #{place}. Take one on the page /census, or with " \
                                             "memscope census --pid #{place.pid}.")
        end

        # @return [Memscope::Census::Growth, nil] since the census before; nil if there is none
        def growth = @growth ||= (latest - kept.first if kept.size > 1)

        # @return [Symbol]
        # @raise [HttpError]
        def by = choice("by", GROUPINGS.keys.map(&:name), "class").to_sym

        # @return [String] a key of COLUMNS or GROWTHS
        # @raise [HttpError]
        def sort = choice("sort", columns.keys, "memsize")

        # @return [Hash{String => Array(String, Symbol)}]
        def columns = growth ? { **COLUMNS, **GROWTHS } : COLUMNS

        # @return [Array<Row>] those that are shown, in the order of the query: none of memscope's own classes, and none
        #   of 0.0 MiB unless all are
        def rows = large(sorted.reject { |row| Terms.own?(row.name) }, :memsize_bytes).first(MOST)

        # @return [Array<Row>] those that are not shown
        def others = sorted - rows

        # @param row [Row]
        # @return [Record, nil] the growth of this row
        def change(row) = changes[row.name]

        private

        def sorted
          field = columns.fetch(sort).last
          @sorted ||= latest.by(by).sort_by do |row|
            value = GROWTHS.key?(sort) ? change(row)&.public_send(field) || 0 : row.public_send(field)
            [-value, row.name]
          end
        end

        def changes = @changes ||= growth ? growth.by(by).to_h { |row| [row.name, row] } : {}

        def kept = @kept ||= @calls.kept_censuses(place)
      end
    end
  end
end
