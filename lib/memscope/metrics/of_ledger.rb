# frozen_string_literal: true

require_relative "definition"

module Memscope
  module Metrics
    OF_LEDGER = [
      Definition.new("ledger_bytes",
                     "Resident memory by its proven owner; the rows sum to memscope_ledger_rss_bytes",
                     source: :ledger, labels: %i[row], read: :leaf_bytes,
                     report: :leaves),
      Definition.new("ledger_rss_bytes", "Resident memory that the ledger's own scan saw",
                     source: :ledger, read: :rss_bytes, report: :ledger_rss_bytes),
      Definition.new("ledger_read_time_seconds", "When the ledger was read, in seconds since 1970",
                     source: :ledger, read: ->(ledger) { ledger.at.to_f.round(3) },
                     report: ->(worker) { worker.rows && worker.at.to_f.round(3) }),
      Definition.new("ledger_unverified_rows", "Rows that another source contradicts",
                     source: :ledger, read: :unverified_rows,
                     report: :unverified_rows)
    ].freeze
    private_constant :OF_LEDGER
  end
end
