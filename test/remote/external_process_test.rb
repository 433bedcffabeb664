# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"

class ExternalProcessTest < MemscopeTest
  include Listening

  def test_what_the_kernel_tells
    process = start("held = 'x' * 40_000_000", requires: [])
    outside = Memscope::ExternalProcess.read(process.pid)

    assert_equal [process.pid, Process.euid, "external_process"], [outside.pid, outside.uid, outside.kind]
    assert_predicate outside, :runs_ruby?
    refute_predicate outside, :listens?
    assert_operator outside.anonymous_bytes, :>, 40_000_000
    assert_operator outside.rss_bytes, :>=, outside.pss_bytes
    assert_operator outside.pss_bytes, :>=, outside.uss_bytes
    assert_in_delta outside.rss_bytes, outside.uss_bytes + outside.shared_bytes, outside.rss_bytes * 0.1
    assert_match(/\A\S*ruby\S* .*eval/, outside.command)
    assert_equal Memscope.cgroup.path, outside.cgroup.path
    assert_equal process.pid, outside.cgroup.pid
    assert_equal outside, Memscope::ExternalProcess.from_h(JSON.parse(outside.to_json))
    assert_includes Memscope::ExternalProcess.rubies, process.pid
  end

  # The child is stopped, so that it lives while the process is read.
  def test_what_is_private_is_unknown_while_a_child_of_memscope_lives
    skip_under_sanitizer
    skip "this kernel does not list children" unless File.exist?("/proc/self/task/#{Process.pid}/children")
    process = start("kept = Array.new(300_000) { 'kept' * 10 }; " \
                    "Thread.new { loop { Memscope::Census.bounded(budget_us: 0) } }")
    outside = beside_stopped_child(process.pid) { Memscope::ExternalProcess.read(process.pid) }

    assert_equal [nil, nil, nil], [outside.pss_bytes, outside.uss_bytes, outside.shared_bytes]
    assert_match(/smaps_rollup: a forked child of memscope shared/, outside.reasons[:uss_bytes])
    assert_operator outside.rss_bytes, :>, 0
  end

  def beside_stopped_child(pid)
    child = stopped_child(pid)
    yield
  ensure
    Process.kill(:CONT, child) if child
  end

  def stopped_child(pid)
    Timeout.timeout(PATIENCE) do
      children = Dir["/proc/#{pid}/task/*/children"].flat_map { |path| File.read(path).split.map(&:to_i) }
      children.each do |child|
        Process.kill(:STOP, child)
        sleep 0.001 until "TZX".include?(state = File.read("/proc/#{child}/stat")[/.*\) (.)/, 1])
        return child if state == "T"
      end
      redo
    rescue SystemCallError
      retry # the child or a thread has ended
    end
  end

  # A living child of another kind, such as a worker, really shares pages.
  def test_what_a_worker_shares_is_told
    process = start("parent = $$; fork { sleep 0.2 while Process.ppid == parent }", requires: [])

    assert_operator Memscope::ExternalProcess.read(process.pid).shared_bytes, :>, 0
  end

  # Its envelope tells it from a later process of the same pid.
  def test_which_process_it_is
    own = Memscope::ExternalProcess.read(Process.pid)
    other = Memscope::ExternalProcess.read(start(requires: []).pid)

    assert_equal Memscope.process_memory.process, own.process
    assert other.process.same_machine?(own.process)
    assert_operator other.process.started, :>, own.process.started
    assert_equal [other.process] * 2, [other.cgroup.process, Memscope::ExternalProcess.from_h(other.to_h).process]
  end

  def test_which_malloc_is_mapped
    skip_under_sanitizer
    process = start(requires: [], preload: ChildProcess::ALLOCATORS[:jemalloc], env: { "MALLOC_CONF" => "narenas:2" })
    outside = Memscope::ExternalProcess.read(process.pid)

    assert_equal %i[glibc jemalloc], outside.mallocs.map(&:name).sort
    assert_equal({ LD_PRELOAD: "libjemalloc.so.2", MALLOC_CONF: "narenas:2" }, outside.variables)
    text = outside.to_s.gsub(/\s+/, " ")

    assert_match(%r{jemalloc, /\S+libjemalloc.so.2 }, text)
    assert_includes text, "set: LD_PRELOAD=libjemalloc.so.2"
    assert_match(%r{glibc, /\S+ }, text)
    assert_includes text, "set: MALLOC_CONF=narenas:2"
  end

  def test_a_process_that_listens
    assert_predicate Memscope::ExternalProcess.read(listening.pid), :listens?
  end

  # As after many questions to a process that is stopped, or does not let go of the GVL.
  def test_a_process_whose_backlog_is_full
    process = listening
    Process.kill(:STOP, process.pid)
    waiting = connect_until_full(process)

    assert_predicate Memscope::ExternalProcess.read(process.pid), :listens?
  ensure
    waiting&.each(&:close)
  end

  # A process can end while it is being read.
  def test_a_process_that_has_ended_meanwhile_runs_no_ruby
    refute Memscope::Client.ruby?(0x7fff_ffff)
  end

  # A process can call itself anything.
  def test_a_terminal_obeys_nothing_that_a_process_says
    process = start("$0 = \"\\e[2J\\e]0;owned\\a\\nsecond line\"", requires: [])
    outside = Memscope::ExternalProcess.read(process.pid)

    assert_equal "?[2J?]0;owned??second line", outside.command
    assert_match(/\A[[:print:]\n]+\z/, outside.to_s)
  end

  def test_another_users_process
    skip_unless_root
    skip_unless_readable_for(65_534)
    process = listening
    ran = ChildProcess.run(<<~RUBY, requires: %w[memscope])
      Process::Sys.setgid(65_534)
      Process::Sys.setuid(65_534)
      outside = Memscope::ExternalProcess.read(#{process.pid})
      puts JSON.generate([outside.rss_bytes.positive?, outside.pss_bytes, outside.listens?, outside.reasons])
    RUBY
    rss, pss, listens, reasons = ran.json

    assert_equal [true, nil, false], [rss, pss, listens]
    assert_match(%r{\Afrom /proc/#{process.pid}/status}, reasons["rss_bytes"])
    assert_match(%r{/proc/#{process.pid}/smaps_rollup: refused by the kernel}, reasons["pss_bytes"])
    assert_match(/maps: Permission denied/, reasons["mallocs"])
  end

  def test_no_process
    gone = Process.spawn("true").tap { |pid| Process.wait(pid) }
    error = assert_raises(Memscope::Client::Unreachable) { Memscope::ExternalProcess.read(gone) }

    assert_equal ["there is no process #{gone}", :gone], [error.message, error.why]
    assert_raises(ArgumentError) { Memscope::ExternalProcess.read("self") }
  end
end
