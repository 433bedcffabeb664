# frozen_string_literal: true

require "tmpdir"

# Memory cgroups of a test's own, at the root of the v1 hierarchy: the kernel kills only the test's children.
module MemoryGroups
  V1 = "/sys/fs/cgroup/memory"

  private

  def skip_without_groups
    skip "no v1 memory hierarchy for root" unless Process.uid.zero? && File.exist?("#{V1}/memory.limit_in_bytes")
  end

  def in_group(limit)
    name = Dir.mktmpdir { |directory| File.basename(directory) }
    group = "#{V1}/memscope_#{name}"
    Dir.mkdir(group)
    File.write("#{group}/memory.limit_in_bytes", limit.to_s)
    yield group
  ensure
    remove_group(group)
  end

  # The kernel may hold a group for a moment after its last process has been waited for.
  def remove_group(group)
    Dir.rmdir(group)
  rescue Errno::EBUSY
    sleep 0.05
    retry
  end

  # @return [Array<String>] a command that enters the group, and then is the given one
  def within(group, command) = ["sh", "-c", "echo $$ > #{group}/cgroup.procs && exec \"$0\" \"$@\"", *command]
end
