# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/workers/single_host"
require "minitest/mock"
require "tmpdir"

# The signals are noted, not sent; test/acceptance/policy_sidekiq_test.rb has a real Sidekiq.
class SingleHostTest < MemscopeTest
  LAUNCHER = Struct.new(:stopping?).new(false)

  # As Sidekiq knows its jobs: the payload is JSON since Sidekiq 7.
  def job(payload, seconds: 0) = { queue: "default", payload: payload, run_at: Time.now.to_i - seconds }

  def setup
    @directory = Dir.mktmpdir
    @now = 1000.0
    @said = []
    @signals = []
    @work = []
    @host = sidekiq
  end

  def teardown = FileUtils.remove_entry(@directory)

  def sidekiq
    host = Memscope::Workers::SingleHost.new
    work = -> { @work }
    said = @said
    host.define_singleton_method(:sidekiq) { LAUNCHER }
    host.define_singleton_method(:work) { work.call }
    host.define_singleton_method(:log) { |text| said << text }
    host
  end

  def settled(&block)
    Memscope::Workers.stub(:setting, ->(name) { @directory if name == :socket_directory }) do
      Memscope::Clock.stub(:now, -> { @now }) do
        Process.stub(:kill, ->(signal, _pid) { @signals << signal }, &block)
      end
    end
  end

  def restart(host = @host) = settled { host.restart(nil, { action: :restart }) }
  def advance(seconds) = settled { (@now += seconds) && @host.advance }

  def test_becomes_quiet_and_ends_five_seconds_after_its_last_job
    restart
    @work = [job({ "class" => "Job" })]
    advance(60)
    @work = []
    advance(4)

    assert_equal [:TSTP], @signals
    advance(1)

    assert_equal %i[TSTP TERM], @signals
  end

  def test_its_successor_knows_of_the_restart
    outcome = Memscope::Policy::Outcome.capture({ action: :restart, pid: 1, executed: false, seconds: 9,
                                                  expected_bytes: 5, failed_boots: 0 })
    outcome = { **outcome.to_h, before: 7, others: {} }
    left = settled { @host.restart(nil, outcome) && Memscope::Workers::Evidence.left }

    assert_equal [{ **outcome, executed: true }], left
  end

  def test_a_job_that_may_never_end
    @work = [job({ "class" => "Short" }), job('{"class":"Wrapper","wrapped":"Endless"}', seconds: 901)]

    assert_equal "a job of Endless has run for more than 15 minutes", assert_raises(RuntimeError) { restart }.message
    assert_empty @signals
  end

  def test_says_which_jobs_keep_it_from_ending
    restart
    @work = [job({ "class" => "Import" }), job('{"class":"Import"}'), job('{"class":"Mail"}')]
    9.times { advance(100) }

    assert_equal ["policy: still waits for 3 jobs (Import, Mail), 900 s after Sidekiq became quiet"], @said
    8.times { advance(100) }

    assert_equal 1, @said.size
  end

  def test_jobs_that_cannot_be_counted
    @work = nil

    assert_equal "its jobs cannot be counted", assert_raises(RuntimeError) { restart }.message
  end

  # In Puma's log, if Puma has no workers and no logger is set.
  def test_logs_where_its_server_does
    log = Class.new { define_method(:log) { |text| (@lines ||= []) << text } }.new
    settled { Memscope::Workers::SingleHost.new(log).log("policy: x") }

    assert_equal ["memscope: policy: x"], log.instance_variable_get(:@lines)
    assert_nil(settled { Memscope::Workers::SingleHost.new.log("policy: x") })
  end

  # Opening a file a second time is like another process's opening it: flock tells the two apart.
  def test_one_process_of_a_container_at_a_time
    restart
    error = assert_raises(RuntimeError) { restart(sidekiq) }

    assert_equal "another process of this container is being restarted", error.message
    assert_equal [:TSTP], @signals
    Socket.stub(:gethostname, "another") { restart(sidekiq) }

    assert_equal %i[TSTP TSTP], @signals
  end

  def test_the_next_one_after_its_end
    pid = fork do
      restart
      sleep
    end
    sleep 0.01 until Dir.children(@directory).grep(/outcome/).any?

    assert_match(/another process/, assert_raises(RuntimeError) { restart }.message)
    finish(pid)
    restart

    assert_equal [:TSTP], @signals
  ensure
    finish(pid)
  end

  def finish(pid)
    Process.kill(:KILL, pid)
    Process.wait(pid)
  rescue Errno::ESRCH
    nil
  end
end
