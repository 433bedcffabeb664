# frozen_string_literal: true

require_relative "../value/reading"
require_relative "../process/snapshot"
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

    # The columns of a table of processes, in text and on the page, by field: the heading, and the help of the metric
    # memscope_worker_FIELD (the RSS has another one).
    #
    # @api private
    COLUMNS = {
      rss_bytes: ["RSS"],
      pss_bytes: ["PSS", "Resident memory, with each page divided by the number of processes that map it"],
      uss_bytes: ["USS", "Resident memory that this worker alone maps"],
      shared_bytes: ["shared", "RSS minus USS: memory shared copy-on-write or through files"],
      unshared_since_fork_bytes: ["unshared", "Shared with the master when the worker started, and private now"]
    }.freeze

    # @return [Integer, nil] RSS of the ledger, which is the sum of its rows
    def ledger_rss_bytes = rows&.values&.sum

    # @api private
    # @return [Worker] a copy with other values for some fields
    def with(**changes) = self.class.capture({ **values, **changes })
  end
end
