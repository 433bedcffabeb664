# frozen_string_literal: true

require_relative "../test_helper"
require "json"

class ProcessMemoryTest < MemscopeTest
  MEBIBYTE = 1 << 20

  ROLLUP = {
    pss_bytes: "Pss", pss_anonymous_bytes: "Pss_Anon", pss_file_bytes: "Pss_File", shared_clean_bytes: "Shared_Clean",
    private_clean_bytes: "Private_Clean", lazy_free_bytes: "LazyFree", anonymous_huge_bytes: "AnonHugePages",
    swap_bytes: "Swap", locked_bytes: "Locked"
  }.freeze
  STATUS = {
    peak_rss_bytes: "VmHWM", file_bytes: "RssFile", shared_memory_bytes: "RssShmem", virtual_bytes: "VmSize",
    page_tables_bytes: "VmPTE"
  }.freeze

  # The reading lies between the files' values before and after: other tests' threads end, and their stacks are freed.
  def test_agrees_with_the_files
    before = file_bytes
    memory = Memscope.process_memory
    after = file_bytes
    before.each do |name, bytes|
      next assert_nil(memory.public_send(name), name) unless bytes

      least, most = [bytes, after[name]].minmax

      assert_includes (least - MEBIBYTE)..(most + MEBIBYTE), memory.public_send(name), name
    end
  end

  # The values in the kernel's files, by the names of the reading's fields; nil for those that the files lack.
  def file_bytes
    { "/proc/self/smaps_rollup" => ROLLUP, "/proc/self/status" => STATUS }.reduce({}) do |found, (path, keys)|
      text = File.read(path)
      found.merge(keys.transform_values { |key| text[/^#{key}:\s+(\d+) kB/, 1]&.to_i&.*(1024) })
    end
  end

  def test_sums
    memory = Memscope.process_memory

    assert_equal memory.private_clean_bytes + memory.private_dirty_bytes, memory.uss_bytes
    assert_equal memory.shared_clean_bytes + memory.shared_dirty_bytes, memory.shared_bytes
    assert_equal memory.rss_bytes, memory.uss_bytes + memory.shared_bytes
    assert_operator memory.uss_bytes, :<=, memory.pss_bytes + 4096
    assert_operator memory.pss_bytes, :<=, memory.rss_bytes
  end

  def test_counts_and_flags
    memory = child_json("queue = Queue.new; 3.times { Thread.new { queue.pop } }; sleep 0.2; " \
                        "puts Memscope.process_memory.to_json")

    assert_operator memory["threads"], :>=, 4
    assert_includes [true, false], memory["thp_enabled"]
  end

  def test_sharing_with_a_forked_child
    memories = child_json(<<~RUBY, requires: ["json"])
      block = "x" * (32 << 20)
      reader, writer = IO.pipe
      pid = fork { writer.puts("ready"); sleep }
      reader.gets
      shared = Memscope.process_memory
      Process.kill(:KILL, pid)
      Process.wait(pid)
      puts JSON.generate([shared.to_h, Memscope.process_memory.to_h])
      block.clear
    RUBY
    before, after = memories.map { |memory| memory.transform_keys(&:to_sym) }

    assert_operator before[:shared_dirty_bytes] - after[:shared_dirty_bytes], :>=, 32 * MEBIBYTE
    assert_operator after[:uss_bytes] - before[:uss_bytes], :>=, 32 * MEBIBYTE
    assert_operator after[:pss_bytes] - before[:pss_bytes], :>=, 15 * MEBIBYTE
  end

  def test_every_nil_has_a_reason
    memory = Memscope.process_memory
    unknown = memory.body.select { |_, value| value.nil? }.keys

    assert_equal [], unknown - memory.reasons.keys
  end

  # A process that dropped root itself is not dumpable; its own smaps_rollup can still be read.
  def test_after_dropping_root
    skip "needs root" unless Process.uid.zero?
    skip_unless_readable_for(65_534)
    memory = child_json("Process::Sys.setgid(65534); Process::Sys.setuid(65534); " \
                        "puts Memscope.process_memory.to_json")

    assert_kind_of Integer, memory["rss_bytes"]
  end

  def test_without_proc
    skip "chroot needs root" unless Process.uid.zero?
    memory = child_json(<<~RUBY, requires: %w[json tmpdir])
      Dir.mktmpdir do |directory|
        pid = fork { Dir.chroot(directory); puts Memscope.process_memory.to_json }
        Process.wait(pid)
      end
    RUBY

    assert_equal [nil, nil, nil], memory.values_at("rss_bytes", "pss_bytes", "peak_rss_bytes")
    assert_match(/smaps_rollup: not there/, memory["reasons"]["pss_bytes"])
    assert_match(%r{/proc/self/status: not there}, memory["reasons"]["peak_rss_bytes"])
  end

  # If a mount hides smaps_rollup, values that status has too are read from status.
  def test_status_fills_in
    skip "needs root" unless Process.uid.zero?
    script = "mount --bind /dev/null /proc/$$/smaps_rollup 2>/dev/null || exit 75; exec \"$@\""
    ruby = [*ChildProcess.ruby, "-rmemscope", "-e", "puts Memscope.process_memory.to_json"]
    result = ChildProcess.run_command("unshare", "-m", "sh", "-c", script, "sh", *ruby)
    skip "no private mounts here: #{result}" if result.status.exitstatus != 0
    memory = result.json

    assert_kind_of Integer, memory["rss_bytes"]
    assert_match(%r{\Afrom /proc/self/status}, memory["reasons"]["rss_bytes"])
    assert_nil memory["pss_bytes"]
    assert_match(/smaps_rollup/, memory["reasons"]["uss_bytes"])
  end

  def test_survives_json
    memory = Memscope.process_memory

    assert_equal memory, Memscope::ProcessMemory.from_h(JSON.parse(memory.to_json))
  end

  def test_cost
    cost = Memscope.process_memory.cost

    assert_equal :T2, cost.tier
    assert_operator cost.gvl_us, :<=, cost.wall_us
  end

  # The line of groups precedes those of memory in /proc/self/status.
  def test_a_process_in_thousands_of_groups
    skip "only root can join groups" unless Process.uid.zero?
    found = child_json(<<~RUBY, requires: %w[json])
      Process.maxgroups = 65_536
      Process.groups = (100_000...103_000).to_a
      memory = Memscope.process_memory
      threads = memory.threads - Dir.children("/proc/self/task").size
      puts JSON.generate([memory.peak_rss_bytes.to_i, threads, Memscope.measure { nil }.peak_bytes.class.name])
    RUBY

    assert_operator found.first, :>, 1 << 20
    assert_equal [0, "Integer"], found.drop(1)
  end
end
