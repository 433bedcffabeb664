# frozen_string_literal: true

require_relative "definition"

module Memscope
  module Metrics
    # Levels of the memory cgroup: the method of Cgroup, and the name, are one word; help.
    CGROUP_LEVELS = {
      limit_bytes: "The effective limit; no sample where there is none",
      current_bytes: "Charged to the group and those below it, page cache included",
      peak_bytes: "The most charged so far",
      working_set_bytes: "Current less inactive page cache: what Kubernetes evicts by",
      headroom_bytes: "The limit less this group's own working set",
      hierarchy_headroom_bytes: "The least that any limit on the way up leaves",
      high_bytes: "Above it the kernel slows the group down; no sample where it is not set",
      swap_bytes: "Swapped out",
      swap_limit_bytes: "The limit of that; no sample where there is none",
      anonymous_bytes: "Memory without a file",
      file_bytes: "Page cache, shared memory included",
      inactive_file_bytes: "Page cache that the kernel takes back first",
      kernel_bytes: "Kernel memory",
      host_memory_bytes: "Memory of the machine: the bound of a group without a limit"
    }.freeze

    OF_CGROUP = [
      *CGROUP_LEVELS.map do |name, help|
        Definition.new("cgroup_#{name}", help, source: :cgroup, shared: true, read: name)
      end,
      Definition.new("cgroup_cpus", "How many CPUs' time the group may use; no sample without a quota",
                     source: :cgroup, shared: true, read: :cpu_limit),
      Definition.new("cgroup_events_total", "What happened at the limits, in the kernel's words",
                     source: :cgroup, shared: true, type: :counter, labels: %i[event],
                     read: ->(cgroup) { cgroup.events || {} }),
      Definition.new("cgroup_pressure_seconds_total", "Time in which some, or all, tasks waited for memory",
                     source: :cgroup, shared: true, type: :counter, labels: %i[stall],
                     read: lambda { |cgroup|
                       (cgroup.pressure || {}).transform_values { |stall| stall[:total_us]&.fdiv(1_000_000) }
                     })
    ].freeze
    private_constant :CGROUP_LEVELS, :OF_CGROUP
  end
end
