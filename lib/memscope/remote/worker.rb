# frozen_string_literal: true

Memscope::Loading.units :Tags, :Verdict

module Memscope
  Record.declare(__FILE__)

  # One process of a server, as it last reported itself: a worker or the master of a cluster, or the only process of a
  # server without a cluster.
  #
  # rss_bytes is the sum of uss_bytes and shared_bytes. The rows come from a ledger that was read just before, and sum
  # to ledger_rss_bytes, which differs from rss_bytes by some pages.
  class Worker < Record
    # A report begins with index, pid and role: the master goes by them before it parses (Received::HEAD).

    # The columns of a table of processes, in text and on the page: headings by field. All but the RSS are metrics too,
    # memscope_worker_FIELD.
    # @api private
    COLUMNS = { rss_bytes: "RSS", pss_bytes: "PSS", uss_bytes: "USS", shared_bytes: "shared",
                unshared_since_fork_bytes: "unshared" }.freeze

    # @return [Integer, nil] RSS of the ledger, which is the sum of its rows
    def ledger_rss_bytes = rows&.values&.sum

    # @api private
    def with(**changes) = self.class.capture({ **values, **changes })
  end
end
