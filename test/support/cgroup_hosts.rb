# frozen_string_literal: true

require "fileutils"
require "tmpdir"

# Copies of kernels' cgroup files: one directory per host, with "proc" for /proc and "sys" for /sys/fs/cgroup. A host
# has a membership, the lines of its mountinfo, and its groups. A group states its differences from GROUP.
module CgroupHosts
  MEBIBYTE = 1 << 20
  UNLIMITED_V1 = 9_223_372_036_854_771_712

  GROUP = { current: 160, limit: nil, inactive: 20 * MEBIBYTE, high: nil, swap_limit: nil, cpu: nil }.freeze

  V2_STAT = { anon: 100 * MEBIBYTE, file: 48 * MEBIBYTE, kernel: 4 * MEBIBYTE, kernel_stack: 512 << 10, sock: 8192,
              shmem: MEBIBYTE, file_mapped: 12 * MEBIBYTE, anon_thp: 2 * MEBIBYTE, inactive_anon: 1000,
              active_anon: 2000, inactive_file: nil, active_file: 24 * MEBIBYTE }.freeze
  V2_EVENTS = { low: 0, high: 3, max: 17, oom: 2, oom_kill: 1, oom_group_kill: 0 }.freeze
  V2_PRESSURE = "some avg10=1.50 avg60=0.25 avg300=0.05 total=123456\n" \
                "full avg10=0.75 avg60=0.10 avg300=0.00 total=65432\n"
  # The root group has no limits, and its numbers are those of the whole machine.
  V2_ROOT = { "memory.stat" => { **V2_STAT, anon: 1, inactive_file: 2 } }.freeze

  DISK = "22 27 0:21 / /proc rw,relatime - proc proc rw\n27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
  V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - " \
             "cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
  V1_MOUNTS = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n" \
              "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n" \
              "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
  UNIFIED_MOUNT = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"

  class << self
    # @return [String] a directory with all hosts, written once a test run
    def directory = @directory ||= Dir.mktmpdir("memscope-cgroups").tap { |path| write_all(path) }

    # @return [Array<String>]
    def names = HOSTS.keys

    private

    def write_all(path)
      Minitest.after_run { FileUtils.remove_entry(path) }
      HOSTS.each do |name, host|
        files(**host).each { |file, content| write(File.join(path, name, file), content) }
      end
    end

    def write(path, content)
      FileUtils.mkdir_p(File.dirname(path))
      content = content.map { |key, value| "#{key} #{value}\n" }.join if content.is_a?(Hash)
      File.write(path, content)
    end

    def files(cgroup:, mountinfo:, meminfo: "MemTotal:        8000000 kB\nMemFree:         4000000 kB\n", groups: {})
      inside = groups.flat_map { |directory, group| group.map { |name, value| ["sys/#{directory}/#{name}", value] } }
      { "proc/self/cgroup" => cgroup, "proc/self/mountinfo" => mountinfo, "proc/meminfo" => meminfo, **inside.to_h }
        .compact
    end

    def v2(**differences)
      group = { **GROUP, **differences }
      { "memory.current" => line(group[:current] * MEBIBYTE), "memory.peak" => line((group[:current] + 1) * MEBIBYTE),
        "memory.max" => line(bytes(group[:limit])), "memory.high" => line(bytes(group[:high])),
        "memory.low" => line(0), "memory.min" => line(0), "memory.swap.current" => line(4096),
        "memory.swap.max" => line(bytes(group[:swap_limit])), "memory.events" => V2_EVENTS,
        "memory.pressure" => V2_PRESSURE, "memory.stat" => { **V2_STAT, inactive_file: group[:inactive] },
        "cpu.max" => group[:cpu] && line(group[:cpu]) }.compact
    end

    def v1(swap_limit: nil, above: nil, **differences)
      group = { **GROUP, **differences }
      current = group[:current] * MEBIBYTE
      { "memory.usage_in_bytes" => line(current), "memory.max_usage_in_bytes" => line(current + MEBIBYTE),
        "memory.limit_in_bytes" => line(bytes(group[:limit], UNLIMITED_V1)),
        "memory.failcnt" => line(38), "memory.kmem.usage_in_bytes" => line(4 * MEBIBYTE),
        "memory.kmem.tcp.usage_in_bytes" => line(8192),
        "memory.oom_control" => { oom_kill_disable: 0, under_oom: 0, oom_kill: 1 },
        "memory.stat" => v1_stat(bytes(above || group[:limit], UNLIMITED_V1), bytes(swap_limit, UNLIMITED_V1),
                                 group[:inactive]) }
    end

    # Keys without "total_" count the group alone, without the groups below it.
    def v1_stat(limit, memory_and_swap_limit, inactive)
      { cache: 48 * MEBIBYTE, rss: 100 * MEBIBYTE, rss_huge: 0, shmem: 0, swap: 0, inactive_file: 111,
        hierarchical_memory_limit: limit, hierarchical_memsw_limit: memory_and_swap_limit,
        total_cache: 48 * MEBIBYTE, total_rss: 100 * MEBIBYTE, total_rss_huge: 2 * MEBIBYTE, total_shmem: MEBIBYTE,
        total_swap: 4096, total_inactive_file: inactive }
    end

    def v1_cpu(quota) = { "cpu.cfs_quota_us" => line(quota), "cpu.cfs_period_us" => line(100_000) }

    def bytes(mebibytes, unlimited = "max") = mebibytes ? mebibytes * MEBIBYTE : unlimited

    def line(value) = "#{value}\n"
  end

  NO_MEMORY = { "cgroup.procs" => "1\n" }.freeze
  private_constant :NO_MEMORY

  HOSTS = {
    "v2" => { cgroup: "0::/app.slice/web.service\n", mountinfo: DISK + V2_MOUNT, groups: {
      "" => V2_ROOT, "app.slice" => v2(current: 400, cpu: "max 100000"),
      "app.slice/web.service" => v2(limit: 512, high: 480, swap_limit: 64, cpu: "150000 100000")
    } },
    "v2_unlimited" => { cgroup: "0::/user.slice\n", mountinfo: DISK + V2_MOUNT,
                        groups: { "" => V2_ROOT, "user.slice" => v2(cpu: "max 100000") } },
    "v2_nested" => { cgroup: "0::/pod/app/worker\n", mountinfo: DISK + V2_MOUNT, groups: {
      "" => V2_ROOT,
      "pod" => v2(current: 450, limit: 512, high: 400, swap_limit: 0, inactive: 10 * MEBIBYTE, cpu: "50000 100000"),
      "pod/app" => v2(current: 200, limit: 768, swap_limit: 64, cpu: "max 100000"), "pod/app/worker" => v2(current: 100)
    } },
    "v2_controller_above" => { cgroup: "0::/app/leaf\n", mountinfo: DISK + V2_MOUNT,
                               groups: { "" => V2_ROOT, "app" => v2(limit: 512), "app/leaf" => NO_MEMORY } },
    "v2_root_group" => { cgroup: "0::/\n", mountinfo: DISK + V2_MOUNT, groups: { "" => V2_ROOT } },
    "v2_container" => { cgroup: "0::/\n", groups: { "" => v2(limit: 512) },
                        mountinfo: "#{DISK}510 500 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n" },
    "without_mountinfo" => { cgroup: "0::/app\n", mountinfo: nil, groups: { "" => V2_ROOT, "app" => v2(limit: 512) } },
    "gone" => { cgroup: "0::/app.slice/stopped.service (deleted)\n", groups: { "app.slice" => v2(limit: 512) },
                mountinfo: "30 23 0:26 /app.slice/other /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n" },
    "no_controller" => { cgroup: "0::/app\n", mountinfo: DISK + V2_MOUNT, groups: { "app" => NO_MEMORY } },
    "none" => { cgroup: "", mountinfo: DISK },
    "v1" => { cgroup: "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n",
              mountinfo: DISK + V1_MOUNTS, groups: {
                "memory" => v1(current: 900), "memory/docker" => v1(current: 300),
                "memory/docker/abc" => v1(limit: 512, swap_limit: 768),
                "cpu,cpuacct/docker" => v1_cpu(-1), "cpu,cpuacct/docker/abc" => v1_cpu(200_000)
              } },
    "v1_nested" => { cgroup: "4:memory:/pod/app\n", mountinfo: DISK + V1_MOUNTS, groups: {
      "memory" => v1(current: 900), "memory/pod" => v1(current: 450, limit: 512, inactive: 10 * MEBIBYTE),
      "memory/pod/app" => v1(above: 512)
    } },
    "v1_container" => { cgroup: "4:memory:/docker/abc\n", groups: { "memory" => v1(above: 512) },
                        mountinfo: "#{DISK}35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime - " \
                                   "cgroup cgroup rw,memory\n" },
    "hybrid" => { cgroup: "4:memory:/app\n3:cpu:/\n0::/app.scope\n", mountinfo: DISK + V1_MOUNTS + UNIFIED_MOUNT,
                  groups: { "memory" => v1(current: 900), "memory/app" => v1(limit: 512),
                            "unified/app.scope" => NO_MEMORY } },
    # The mount shows the whole machine's groups, and the names of ours are hidden.
    "namespaced" => { cgroup: "4:memory:/\n0::/\n", groups: { "memory" => v1(current: 900) },
                      mountinfo: "#{DISK}35 31 0:32 /../.. /sys/fs/cgroup/memory rw,relatime - " \
                                 "cgroup cgroup rw,memory\n" },
    "malformed" => { cgroup: "nonsense\n0::/app\n4:memory\n", mountinfo: "#{DISK}30 23\n- - -\n#{V2_MOUNT}",
                     meminfo: "MemTotal: a lot\n", groups: { "app" => {
                       "memory.current" => "many\n", "memory.events" => "oom_kill -1\n", "memory.high" => "12 34\n",
                       "memory.max" => "\n", "memory.peak" => "", "memory.pressure" => "some avg10=nan\n",
                       "memory.stat" => "anon\ninactive_file x\nfile 7 8\n",
                       "memory.swap.max" => "99999999999999999999999\n"
                     } } }
  }.freeze
end
