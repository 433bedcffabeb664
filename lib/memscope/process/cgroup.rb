# frozen_string_literal: true

require_relative "../value/reading"

module Memscope
  # The memory cgroup of this process: the limit of its container, its usage, and the events at the limit.
  #
  # Fields have the same names for cgroup v2 and v1; a value that a version does not have is nil, with a reason. A limit
  # that is not set is nil with the reason "unlimited".
  class Cgroup < Reading
    # @return [Symbol] :v2; :v1; :hybrid if the process is in a v2 group but its memory controller is v1; :none
    field :version, :symbol, null: false, one_of: %i[v2 v1 hybrid none]
    # @return [String, nil] the group as /proc/self/cgroup names it
    field :path, :string
    # @return [String, nil] directory of the files that were read: the nearest group upwards with the memory controller
    field :directory, :string
    # @return [String, nil] group that sets +limit_bytes+: this one or one above it
    field :limit_directory, :string
    # @return [Integer, nil] the effective limit: on v2 the smallest memory.max on the way up, on v1
    #   hierarchical_memory_limit
    field :limit_bytes, :bytes
    # @return [Integer, nil] charged to the group and the groups below it, page cache included
    field :current_bytes, :bytes
    # @return [Integer, nil] most charged so far (v2: Linux 5.19)
    field :peak_bytes, :bytes
    # @return [Integer, nil] +current_bytes+ less inactive page cache: the usage by which Kubernetes decides what to
    #   evict
    field :working_set_bytes, :bytes
    # @return [Integer, nil] +limit_bytes+ less this group's own working set
    field :headroom_bytes, :signed_bytes
    # @return [Integer, nil] the least headroom under any limit on the way up; other groups may use it up too
    field :hierarchy_headroom_bytes, :bytes
    # @return [Integer, nil] the usage above which the kernel throttles the group: the smallest memory.high on the way
    #   up (v2)
    field :high_bytes, :bytes
    # @return [Integer, nil] the group's memory.low (v2)
    field :low_bytes, :bytes
    # @return [Integer, nil] the group's memory.min (v2)
    field :min_bytes, :bytes
    # @return [Integer, nil] swapped out
    field :swap_bytes, :bytes
    # @return [Integer, nil] the smallest memory.swap.max on the way up (v2)
    field :swap_limit_bytes, :bytes
    # @return [Integer, nil] hierarchical_memsw_limit: memory and swap together (v1)
    field :memory_and_swap_limit_bytes, :bytes
    # @return [Integer, nil] memory.stat: anon; v1: total_rss
    field :anonymous_bytes, :bytes
    # @return [Integer, nil] memory.stat: anon_thp; v1: total_rss_huge
    field :anonymous_huge_bytes, :bytes
    # @return [Integer, nil] memory.stat: file; v1: total_cache. Shared memory included
    field :file_bytes, :bytes
    # @return [Integer, nil] memory.stat: inactive_file; v1: total_inactive_file
    field :inactive_file_bytes, :bytes
    # @return [Integer, nil] memory.stat: shmem; v1: total_shmem
    field :shared_memory_bytes, :bytes
    # @return [Integer, nil] memory.stat: kernel (Linux 5.18); v1: memory.kmem.usage_in_bytes
    field :kernel_bytes, :bytes
    # @return [Integer, nil] memory.stat: sock; v1: memory.kmem.tcp.usage_in_bytes
    field :socket_bytes, :bytes
    # @return [Integer, nil] MemTotal of the machine: the bound of a group without a limit
    field :host_memory_bytes, :bytes
    # @return [Float, nil] number of CPUs whose time the group may use: quota / period, the smallest on the way up
    #   (cpu.max; v1: cpu.cfs_quota_us, of the cpu controller's group)
    field :cpu_limit, :number
    # @return [Hash{Symbol => Integer}, nil] memory.events by the kernel's names (:low, :high, :max, :oom, :oom_kill);
    #   v1: :failcnt and :oom_kill
    field :events, :hash, counters: %i[low high max oom oom_kill failcnt]
    # @return [Hash{Symbol => Hash{Symbol => Numeric}}, nil] memory.pressure: :some and :full, each with :avg10, :avg60,
    #   :avg300 (percent of the time) and :total_us (v2)
    field :pressure, :tables, counters: %i[total_us]

    # Reads the cgroup of this process, from the kernel's files or from a copy of them.
    #
    # @param proc_root [String] read instead of /proc: its self/cgroup, self/mountinfo and meminfo
    # @param cgroup_root [String] read instead of /sys/fs/cgroup
    # @return [Cgroup]
    # @raise [ArgumentError] unless both can be paths
    def self.read(proc_root: "/proc", cgroup_root: "/sys/fs/cgroup")
      { proc_root: proc_root, cgroup_root: cgroup_root }.each do |name, root|
        path = root.is_a?(String) && !root.include?("\0")
        Field.refuse(name, root, "a path, a String", call: "Memscope::Cgroup.read") unless path
      end
      capture(Native.cgroup("self", proc_root, cgroup_root))
    end
  end
end
