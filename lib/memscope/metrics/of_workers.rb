# frozen_string_literal: true

require_relative "definition"

module Memscope
  module Metrics
    # What only workers report: name, how it is taken from a Worker, help.
    WORKER_REPORTS = [
      ["worker_pss_bytes", :pss_bytes,
       "Resident memory, with each page divided by the number of processes that map it"],
      ["worker_uss_bytes", :uss_bytes, "Resident memory that this worker alone maps"],
      ["worker_shared_bytes", :shared_bytes, "RSS less USS: shared copy-on-write, or by files"],
      ["worker_unshared_since_fork_bytes", :unshared_since_fork_bytes,
       "What was shared with the master when the worker started and is its own now"],
      ["worker_rss_growth_bytes_per_second", ->(worker) { worker.rss_bytes_per_hour&.fdiv(3_600) },
       "How fast its RSS has grown since it started; no sample in its first minute"],
      ["worker_phase", :phase, "Puma's phase: each phased restart adds one"],
      ["worker_boot_time_seconds", ->(worker) { worker.booted_at&.to_f&.round(3) },
       "When it started, in seconds since 1970"],
      ["worker_report_time_seconds", ->(worker) { worker.at&.to_f&.round(3) },
       "When it last reported, in seconds since 1970"]
    ].freeze

    OF_WORKERS = WORKER_REPORTS.map do |name, report, help|
      Definition.new(name, help, source: nil, report: report)
    end.freeze
    private_constant :WORKER_REPORTS, :OF_WORKERS
  end
end
