# frozen_string_literal: true

require "memscope"
require "memscope/remote/workers/cluster"

# Loaded by the configuration of a Puma: see PolicyPuma. Replaces only parts that other tests measure: the cgroup, and
# the policy's times.
module HastyPolicy
  # Takes memory four seconds after its first request: long before it may be restarted (PolicyPuma), long after its boot
  # has been measured.
  class Application
    TAKEN = 64 << 20

    def call(_env)
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @began ||= now
      @taken ||= ("x" * TAKEN if now - @began > 4)
      sleep 0.002
      [200, { "content-type" => "text/plain" }, ["served\n"]]
    end
  end

  # The working set is the memory of the processes. The limit is a little more.
  module Limit
    def read(**)
      pids = [Process.pid, *Dir["/proc/self/task/*/children"].flat_map { |path| File.read(path).split }]
      used = pids.sum { |pid| own_bytes(pid) }
      capture({ version: :v2, working_set_bytes: used, limit_bytes: (used / 0.97).round, reasons: {},
                cost: Memscope::Cost.of(:T1) })
    end

    def own_bytes(pid)
      File.read("/proc/#{pid}/smaps_rollup").scan(/^Private_\w+: +(\d+) kB/).sum { |(kilobytes)| kilobytes.to_i * 1024 }
    rescue SystemCallError
      0
    end
  end
  Memscope::Cgroup.singleton_class.prepend(Limit)

  # A reading and a decision each second. A restart that did not help, because others took its memory on a slow machine,
  # stops nothing.
  module Times
    def rules
      super.merge(readings: 1, sustained_seconds: 0, settle_seconds: 0.5, gap_seconds: 60, stop_seconds: 1, jitter: 0)
    end
  end
  Memscope::Workers::Controller.prepend(Times)
end
