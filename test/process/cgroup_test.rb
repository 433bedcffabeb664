# frozen_string_literal: true

require_relative "../test_helper"
require "json"
require_relative "../support/cgroup_hosts"

class CgroupTest < MemscopeTest
  FIXTURES = CgroupHosts.directory
  MEBIBYTE = 1 << 20

  def test_v2
    group = read("v2")

    assert_equal [:v2, "/app.slice/web.service"], [group.version, group.path]
    assert_equal 512 * MEBIBYTE, group.limit_bytes
    assert_equal [160 * MEBIBYTE, 161 * MEBIBYTE], [group.current_bytes, group.peak_bytes]
    assert_equal 140 * MEBIBYTE, group.working_set_bytes
    assert_equal 372 * MEBIBYTE, group.headroom_bytes
    assert_equal 372 * MEBIBYTE, group.hierarchy_headroom_bytes
    assert_equal [480 * MEBIBYTE, 0, 0], [group.high_bytes, group.low_bytes, group.min_bytes]
    assert_equal [4096, 64 * MEBIBYTE], [group.swap_bytes, group.swap_limit_bytes]
    assert_equal directory("v2", "app.slice/web.service"), group.directory
    assert_equal group.directory, group.limit_directory
    assert_equal 8_000_000 * 1024, group.host_memory_bytes
    assert_equal [:memory_and_swap_limit_bytes], group.reasons.keys
  end

  def test_v2_stat_keys_are_read_by_name
    group = read("v2")

    assert_equal 100 * MEBIBYTE, group.anonymous_bytes
    assert_equal 48 * MEBIBYTE, group.file_bytes
    assert_equal 20 * MEBIBYTE, group.inactive_file_bytes
    assert_equal [MEBIBYTE, 2 * MEBIBYTE], [group.shared_memory_bytes, group.anonymous_huge_bytes]
    assert_equal [4 * MEBIBYTE, 8192], [group.kernel_bytes, group.socket_bytes]
  end

  def test_v2_events_and_pressure
    group = read("v2")

    assert_equal({ low: 0, high: 3, max: 17, oom: 2, oom_kill: 1 }, group.events)
    assert_equal({ avg10: 1.5, avg60: 0.25, avg300: 0.05, total_us: 123_456 }, group.pressure[:some])
    assert_equal({ avg10: 0.75, avg60: 0.1, avg300: 0.0, total_us: 65_432 }, group.pressure[:full])
  end

  def test_the_cpu_quota_is_the_smallest_on_the_way_up
    assert_in_delta 1.5, read("v2").cpu_limit
    assert_in_delta 0.5, read("v2_nested").cpu_limit
    assert_in_delta 2.0, read("v1").cpu_limit
    assert_nil read("v2_unlimited").cpu_limit
    assert_equal "unlimited (cpu.max)", read("v2_unlimited").reasons[:cpu_limit]
    assert_match(/cpu\.max: not there/, read("v2_root_group").reasons[:cpu_limit])
  end

  def test_unlimited_is_nil_with_a_reason
    group = read("v2_unlimited")

    assert_equal [nil] * 5, [group.limit_bytes, group.high_bytes, group.swap_limit_bytes, group.headroom_bytes,
                             group.hierarchy_headroom_bytes]
    assert_equal 140 * MEBIBYTE, group.working_set_bytes
    %i[limit_bytes headroom_bytes hierarchy_headroom_bytes limit_directory high_bytes swap_limit_bytes].each do |key|
      assert_match(/\Aunlimited/, group.reasons[key], key)
    end
  end

  def test_the_smallest_limit_on_the_way_up_binds
    group = read("v2_nested")

    assert_equal 512 * MEBIBYTE, group.limit_bytes
    assert_equal directory("v2_nested", "pod"), group.limit_directory
    assert_equal 400 * MEBIBYTE, group.high_bytes
    assert_equal 0, group.swap_limit_bytes
    assert_equal 80 * MEBIBYTE, group.working_set_bytes
    assert_equal 432 * MEBIBYTE, group.headroom_bytes
    assert_equal 72 * MEBIBYTE, group.hierarchy_headroom_bytes, "siblings use of the pod's limit"
  end

  def test_a_group_without_the_controller_is_accounted_above
    group = read("v2_controller_above")

    assert_equal "/app/leaf", group.path
    assert_equal directory("v2_controller_above", "app"), group.directory
    assert_equal 512 * MEBIBYTE, group.limit_bytes
  end

  def test_the_root_group_has_no_figures_of_its_own
    group = read("v2_root_group")

    assert_equal :v2, group.version
    assert_nil group.current_bytes
    assert_match(/memory\.current: not there/, group.reasons[:current_bytes])
    assert_equal 2, group.inactive_file_bytes
  end

  def test_v2_in_a_container
    group = read("v2_container")

    assert_equal [:v2, "/", 512 * MEBIBYTE], [group.version, group.path, group.limit_bytes]
  end

  def test_v1
    group = read("v1")

    assert_equal [:v1, "/docker/abc"], [group.version, group.path]
    assert_equal [512 * MEBIBYTE, 768 * MEBIBYTE], [group.limit_bytes, group.memory_and_swap_limit_bytes]
    assert_equal 140 * MEBIBYTE, group.working_set_bytes
    assert_equal 372 * MEBIBYTE, group.headroom_bytes
    assert_equal [100 * MEBIBYTE, 48 * MEBIBYTE], [group.anonymous_bytes, group.file_bytes]
    assert_equal({ oom_kill: 1, failcnt: 38 }, group.events)
    assert_nil group.pressure
    assert_match(/cgroup v1 has no/, group.reasons[:pressure])
    assert_match(/cgroup v1 has no/, group.reasons[:high_bytes])
  end

  def test_v1_limit_on_the_parent_only
    group = read("v1_nested")

    assert_equal 512 * MEBIBYTE, group.limit_bytes
    assert_equal directory("v1_nested", "memory/pod"), group.limit_directory
    assert_equal [372 * MEBIBYTE, 72 * MEBIBYTE], [group.headroom_bytes, group.hierarchy_headroom_bytes]
  end

  def test_v1_limit_of_a_group_that_is_not_visible
    group = read("v1_container")

    assert_equal 512 * MEBIBYTE, group.limit_bytes
    assert_nil group.limit_directory
    assert_nil group.hierarchy_headroom_bytes
    assert_match(/not visible/, group.reasons[:limit_directory])
    assert_match(/not visible/, group.reasons[:hierarchy_headroom_bytes])
  end

  def test_hybrid_reads_v1
    group = read("hybrid")

    assert_equal [:hybrid, "/app", 512 * MEBIBYTE], [group.version, group.path, group.limit_bytes]
  end

  # The mount shows the whole machine's groups, and the names of ours are hidden: the root's figures would be wrong.
  def test_a_mount_from_outside_of_the_namespace_is_not_taken_for_ours
    group = read("namespaced")

    assert_equal :hybrid, group.version
    assert_nil group.directory
    assert_nil group.current_bytes
    assert_match(/directory/, group.reasons[:current_bytes])
  end

  def test_without_mountinfo_the_usual_mount_points_are_tried
    assert_equal 512 * MEBIBYTE, read("without_mountinfo").limit_bytes
  end

  def test_no_memory_controller
    group = read("no_controller")

    assert_equal :none, group.version
    assert_match(/no memory controller/, group.reasons[:version])
    assert_match(/no memory cgroup/, group.reasons[:limit_bytes])
  end

  # There is no descriptor left: whether there is a group is not known.
  def test_a_group_that_could_not_be_read_is_not_absent
    reasons = child_json(<<~RUBY, requires: ["json"])
      Process.setrlimit(:NOFILE, 3)
      puts JSON.generate(Memscope.cgroup.reasons)
    RUBY

    assert_equal ["the process's cgroup file: no descriptor is free (RLIMIT_NOFILE, or the system's limit)"],
                 reasons.values_at("version", "path", "directory", "limit_bytes", "events").uniq
  end

  def test_none
    [read("none"), Memscope::Cgroup.read(proc_root: "/nonexistent", cgroup_root: "/nonexistent")].each do |group|
      assert_equal :none, group.version
      assert_equal [nil, nil, nil], [group.path, group.limit_bytes, group.events]
      assert_includes group.reasons, :version
      assert_includes group.reasons, :limit_bytes
    end
    assert_equal 8_000_000 * 1024, read("none").host_memory_bytes
  end

  def test_a_group_that_is_gone
    group = read("gone")

    assert_equal :v2, group.version
    assert_nil group.current_bytes
    assert_includes group.reasons, :directory
  end

  def test_malformed_files_are_unknown_not_zero
    group = read("malformed")
    numbers = group.body.except(:version, :path, :directory, :reasons, :cost)

    assert_equal [:v2, "/app"], [group.version, group.path]
    assert_equal [], numbers.compact.keys
    assert_match(/memory\.current: not in the documented form/, group.reasons[:current_bytes])
    assert_equal [], numbers.keys - group.reasons.keys
  end

  def test_every_nil_has_a_reason
    CgroupHosts.names.each do |name|
      group = read(name)
      unknown = group.body.select { |_, value| value.nil? }.keys

      assert_equal [], unknown - group.reasons.keys, name
    end
  end

  def test_survives_json
    CgroupHosts.names.each do |name|
      group = read(name)

      assert_equal group, Memscope::Cgroup.from_h(JSON.parse(group.to_json)), name
    end
  end

  def test_a_difference_counts_events
    later = Memscope::Cgroup.from_h(read("v2").to_h.merge(events: { low: 0, high: 5, max: 17, oom: 2, oom_kill: 2 }))
    events = (later - read("v2"))[:events]

    assert_equal [2, 1], [events[:high].change, events[:oom_kill].change]
    assert_predicate events[:high], :counter?
  end

  def test_roots_are_strings
    error = assert_raises(ArgumentError) { Memscope::Cgroup.read(proc_root: nil) }

    assert_match(/proc_root: given nil, allowed: a path, a String/, error.message)
    assert_raises(ArgumentError) { Memscope::Cgroup.read(cgroup_root: "a\0b") }
  end

  def test_this_machine
    group = Memscope.cgroup

    skip "no memory cgroup here" if group.version == :none || group.directory.nil?

    assert_path_exists group.directory
    assert_includes 0..group.current_bytes, group.working_set_bytes if group.current_bytes

    assert_equal File.foreach("/proc/meminfo").first[/\d+/].to_i * 1024, group.host_memory_bytes
    assert_equal :T1, group.cost.tier
  end

  V1_ROOT = "/sys/fs/cgroup/memory"

  def test_a_real_limit
    with_v1_group("memscope_limit") do |path|
      File.write(File.join(path, "memory.limit_in_bytes"), (96 * MEBIBYTE).to_s)
      group = read_inside(path)

      assert_equal 96 * MEBIBYTE, group["limit_bytes"]
      assert_equal path, group["directory"]
      assert_equal path, group["limit_directory"]
      assert_equal 96 * MEBIBYTE, group["headroom_bytes"] + group["working_set_bytes"]
      assert_operator group["current_bytes"], :>, 32 * MEBIBYTE, "the child's own 32 MiB"
    end
  end

  def test_a_real_limit_on_the_parent_only
    with_v1_group("memscope_parent") do |parent|
      path = File.join(parent, "child")
      Dir.mkdir(path)
      File.write(File.join(parent, "memory.limit_in_bytes"), (96 * MEBIBYTE).to_s)
      group = read_inside(path)

      assert_equal 96 * MEBIBYTE, group["limit_bytes"]
      assert_equal [path, parent], group.values_at("directory", "limit_directory")
      assert_operator group["hierarchy_headroom_bytes"], :<=, group["headroom_bytes"] + (4 * MEBIBYTE)
    ensure
      remove_group(path)
    end
  end

  # A container's view: a namespace of its own, in which its group is the root, mounted there.
  def test_a_real_namespace
    with_v1_group("memscope_namespace") do |path|
      File.write(File.join(path, "memory.limit_in_bytes"), (96 * MEBIBYTE).to_s)
      mount = "umount -l #{V1_ROOT} && mount -t cgroup -o memory cgroup #{V1_ROOT} && exec "
      outside, inside = ["exec ", mount].map do |prelude|
        read_inside(path, ["unshare", "-C", "-m", "sh", "-c", "#{prelude}\"$@\"", "sh"])
      end

      assert_equal ["/", nil, nil], outside.values_at("path", "directory", "current_bytes")
      assert_equal ["/", V1_ROOT, 96 * MEBIBYTE], inside.values_at("path", "directory", "limit_bytes")
      assert_operator inside["current_bytes"], :>, 32 * MEBIBYTE
    end
  end

  private

  def read(name)
    Memscope::Cgroup.read(proc_root: File.join(FIXTURES, name, "proc"), cgroup_root: File.join(FIXTURES, name, "sys"))
  end

  def directory(name, path) = File.join(FIXTURES, name, "sys", path)

  def with_v1_group(name)
    skip "needs root" unless Process.uid.zero?
    skip "no v1 memory hierarchy at #{V1_ROOT}" unless File.exist?(File.join(V1_ROOT, "memory.limit_in_bytes"))

    path = File.join(V1_ROOT, "#{name}_#{Process.pid}")
    begin
      Dir.mkdir(path)
    rescue SystemCallError => e
      skip "no group can be made: #{e.message}"
    end
    begin
      yield path
    ensure
      remove_group(path)
    end
  end

  # The kernel removes the last process from its group a little after wait has returned.
  def remove_group(path, attempts = 3000)
    Dir.rmdir(path)
  rescue Errno::EBUSY
    raise if attempts.zero?

    sleep 0.02
    remove_group(path, attempts - 1)
  end

  def read_inside(path, wrapper = [])
    script = 'block = "x" * (32 << 20); puts Memscope.cgroup.to_json; block.clear'
    enter = ["sh", "-c", "echo $$ > #{path}/cgroup.procs && exec \"$@\"", "sh"]
    ruby = [*ChildProcess.ruby, "-rmemscope", "-e", script]
    ChildProcess.run_command(*enter, *wrapper, *ruby).json
  end
end
