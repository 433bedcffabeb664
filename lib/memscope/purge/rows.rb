# frozen_string_literal: true

module Memscope
  module Purge
    # What ledgers' rows became less by.
    #
    # @api private
    module Rows
      module_function

      # Goes as deep as both ledgers do.
      #
      # @param before [Ledger]
      # @param after [Ledger]
      # @return [Hash{Symbol => Integer}] by path, those that did not change left out; their sum is the fall of RSS
      def fall(before, after)
        return {} unless before.rss_bytes && after.rss_bytes

        between(before.rows, after.rows, []).reject { |_path, bytes| bytes.zero? }
                                            .sort_by { |_path, bytes| -bytes.abs }.to_h
      end

      def between(before, after, above)
        pairs = (before.map(&:id) | after.map(&:id)).map do |id|
          [[*above, id], [before, after].map { |rows| rows.find { |row| row.id == id } }]
        end
        pairs.map { |path, (earlier, later)| of(path, earlier, later) }.reduce({}, :merge)
      end

      def of(path, earlier, later)
        deeper = [earlier, later].none? { |row| row.nil? || row.leaf? }
        return between(earlier.children, later.children, path) if deeper

        { path.join("/").to_sym => (earlier&.bytes || 0) - (later&.bytes || 0) }
      end
    end
    private_constant :Rows
  end
end
