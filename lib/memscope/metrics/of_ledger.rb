# frozen_string_literal: true

require_relative "definition"

module Memscope
  module Metrics
    # What is exported of a ledger's rows.
    #
    # @api private
    module LedgerRows
      # @return [Hash{String => Integer}] bytes of the leaves by their paths ("malloc/main_heap"); they sum to the RSS
      def self.leaves(rows, above = nil)
        rows.each_with_object({}) do |row, leaves|
          path = [above, row.id].compact.join("/")
          row.leaf? ? leaves[path] = row.bytes : leaves.update(leaves(row.children, path))
        end
      end

      # @return [Integer] how many are contradicted by their check
      def self.unverified(rows)
        rows.sum { |row| (row.check && !row.check.verified? ? 1 : 0) + unverified(row.children) }
      end
    end

    OF_LEDGER = [
      Definition.new("ledger_bytes",
                     "Resident memory by its proven owner; the rows sum to memscope_ledger_rss_bytes. With Puma the " \
                     "top rows of each worker, as it last reported them",
                     source: :ledger, labels: %i[row], read: ->(ledger) { LedgerRows.leaves(ledger.rows) },
                     report: ->(worker) { worker.rows || {} }),
      Definition.new("ledger_rss_bytes", "Resident memory that the ledger's own scan saw",
                     source: :ledger, read: :rss_bytes, report: ->(worker) { worker.rows&.values&.sum }),
      Definition.new("ledger_read_time_seconds", "When the ledger was read, in seconds since 1970",
                     source: :ledger, read: ->(ledger) { ledger.at.to_f.round(3) },
                     report: ->(worker) { worker.rows && worker.at.to_f.round(3) }),
      Definition.new("ledger_unverified_rows", "Rows that another source contradicts; not of Puma's workers",
                     source: :ledger, read: ->(ledger) { LedgerRows.unverified(ledger.rows) })
    ].freeze
    private_constant :OF_LEDGER
  end
end
