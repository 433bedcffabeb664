# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/workers/single_host"
require "minitest/mock"
require "tmpdir"

class EvidenceTest < MemscopeTest
  RESTART = { action: :restart, index: nil, pid: 4711, executed: true, seconds: 1, private_bytes: 1 << 30,
              expected_bytes: 1 << 29, failed_boots: 0, booted_seconds: nil, returned_bytes: nil,
              before: 1 << 31 }.freeze
  RULES = { policy_soft: 0.8, policy_interval_seconds: 900, policy_min_uptime_seconds: 1800 }.freeze
  # Stands in for a reading: only its JSON is kept.
  READING = Struct.new(:to_json).new("{}")

  def setup = @directory = Dir.mktmpdir
  def teardown = FileUtils.remove_entry(@directory)

  def with_directory(&)
    setting = ->(name) { { policy_evidence_directory: @directory, policy: @policy || :act, **RULES }[name] }
    Memscope::Workers.stub(:setting, setting, &)
  end

  def evidence = Memscope::Workers::Evidence
  def path(name) = File.join(@directory, name)
  def record = with_directory { evidence.record(READING) }
  def leave(**rest) = with_directory { evidence.leave({ **RESTART, **rest }) }
  def left = with_directory { evidence.left }
  def outcome = path(Dir.children(@directory).grep(/outcome/).fetch(0))

  def test_a_restart_is_left_for_one_successor
    leave

    assert_equal [{ **RESTART, others: {} }], left
    assert_empty left
    assert_empty Dir.children(@directory)
  end

  def test_the_last_restart_replaces_the_one_before
    leave
    leave(pid: 4712)

    assert_equal [0o600, 1], [File.stat(outcome).mode & 0o777, Dir.children(@directory).size]
    assert_equal(4712, left.first[:pid])
  end

  def test_a_process_of_another_container_finds_none
    leave
    found = Socket.stub(:gethostname, "another") { left }

    assert_empty found
    assert_equal 1, left.size
  end

  def test_only_a_sidekiq_that_follows_the_policy_takes_it
    leave
    step(Memscope::Workers::SingleHost.new)

    assert_path_exists outcome, "it is not Sidekiq"
    sidekiq = Memscope::Workers::SingleHost.new
    sidekiq.define_singleton_method(:sidekiq) { Struct.new(:stopping?).new(false) }
    sidekiq.define_singleton_method(:log) { |_text| nil }
    @policy = :off
    step(sidekiq)

    assert_path_exists outcome, "the policy is off"
    @policy = :observe

    assert_equal([4711], step(sidekiq).groups.last.outcomes.map(&:pid))
  end

  def step(host) = with_directory { Memscope::Workers::Controller.new(host).tap(&:step) }

  def test_a_link_and_a_broken_file_are_nothing
    leave
    File.rename(outcome, path("elsewhere"))
    name = with_directory { "outcome-#{evidence.place}.json" }
    File.symlink(path("elsewhere"), path(name))

    assert_empty left
    assert_path_exists path("elsewhere")
    File.unlink(path(name))
    File.write(path(name), "{", perm: 0o600)

    assert_empty left
  end

  def test_a_directory_that_others_can_enter_is_refused
    File.chmod(0o755, @directory)
    error = assert_raises(Memscope::Sockets::Refused) { record }

    assert_equal "the directory for evidence #{@directory} has mode 0755; allowed: a directory of uid " \
                 "#{Process.euid} with mode 0700", error.message
    assert_empty Dir.children(@directory)
  end

  def test_a_directory_is_made
    @directory = path("new")
    record

    assert_equal [0o700, "{}\n"], [File.stat(@directory).mode & 0o777, File.read(path("groups.jsonl"))]
  ensure
    @directory = File.dirname(@directory)
  end

  def test_a_file_that_others_can_read_is_refused
    File.write(path("groups.jsonl"), "")
    File.chmod(0o644, path("groups.jsonl"))

    assert_match(/groups.jsonl: allowed: a file of uid \d+ with mode 0600/,
                 assert_raises(Memscope::Sockets::Refused) { record }.message)
    assert_empty File.read(path("groups.jsonl"))
  end

  # Opening a pipe for writing waits for a reader.
  def test_a_pipe_does_not_block
    File.mkfifo(path("groups.jsonl"), 0o600)
    thread = Thread.new { assert_raises(Errno::ENXIO) { record } }

    assert thread.join(5)
  ensure
    thread.kill
  end

  def test_only_the_newest_files_stay_whatever_the_path
    @directory = path("a[b]{c,d}")
    Dir.mkdir(@directory, 0o700)
    25.times do |number|
      File.write(path("restart-#{1_700_000_000_000 + number}-1.json"), "{}")
      File.utime(number, number, path("restart-#{1_700_000_000_000 + number}-1.json"))
    end
    worker = Memscope::Policy::Member.capture({ pid: 1, started_seconds: 0, booted: true, refused: {} })
    decision = Memscope::Policy::Decision.capture({ action: :restart, worker: worker, reason: "x", reasons: {},
                                                    cost: Memscope::Cost.of(:T0) })
    host = Memscope::Workers::SingleHost.new
    host.define_singleton_method(:census) { |_pid| raise "no room" }
    with_directory { evidence.keep(host, decision, []) }

    kept = Dir.children(@directory).sort

    assert_equal [20, "restart-1700000000006-1.json"], [kept.size, kept.first]
  ensure
    @directory = File.dirname(@directory)
  end
end
