# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # The memory cgroup of this process: the limit of its container, its usage, and the events at the limit.
  #
  # Fields have the same names for cgroup v2 and v1. A value that a version does not have is nil, with a reason. A limit
  # that is not set is nil with the reason "unlimited".
  class Cgroup < Reading
    # Reads the cgroup of this process, from the kernel's files or from a copy of them.
    #
    # @param proc_root [String] read instead of /proc: its self/cgroup, self/mountinfo and meminfo
    # @param cgroup_root [String] read instead of /sys/fs/cgroup
    # @return [Cgroup]
    # @raise [ArgumentError] unless both can be paths
    def self.read(proc_root: "/proc", cgroup_root: "/sys/fs/cgroup", native: Native)
      { proc_root: proc_root, cgroup_root: cgroup_root }.each do |name, root|
        path = root.is_a?(String) && !root.include?("\0")
        Field.refuse(name, root, "a path, a String", call: "Memscope::Cgroup.read") unless path
      end
      capture(native.cgroup(native.process, proc_root, cgroup_root))
    end
  end
end
