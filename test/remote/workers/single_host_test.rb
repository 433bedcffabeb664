# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/remote/workers/single_host"
require "minitest/mock"
require "tmpdir"

# The signals are noted, not sent; test/acceptance/policy_sidekiq_test.rb has a real Sidekiq.
class SingleHostTest < MemscopeTest
  # Sidekiq, as far as the host knows it.
  module Sidekiq
    module Processor
      WORK_STATE = [] # rubocop:disable Style/MutableConstant
    end

    def self.logger = nil
  end

  def setup
    @directory = Dir.mktmpdir
    @now = 1000.0
    @signals = []
    @jobs = Sidekiq::Processor::WORK_STATE.clear
  end

  def teardown = FileUtils.remove_entry(@directory)

  def sidekiq
    host = Memscope::Workers::SingleHost.new
    host.define_singleton_method(:sidekiq) { Struct.new(:stopping?).new(false) }
    host
  end

  def stubbed(&block)
    Object.const_set(:Sidekiq, Sidekiq)
    settings = { socket_directory: @directory, policy_supervised: true }
    Memscope::Configuration.stub(:effective, ->(name) { settings[name] }) do
      Memscope::Clock.stub(:now, -> { @now }) do
        Process.stub(:kill, ->(signal, pid) { @signals << (pid == Process.pid ? signal : pid) }, &block)
      end
    end
  ensure
    Object.send(:remove_const, :Sidekiq)
  end

  def restart(host) = stubbed { host.restart(nil) { @signals << :told } }

  def advance(host, seconds)
    @now += seconds
    stubbed { host.advance }
  end

  def test_a_process_is_ended
    host = Memscope::Workers::SingleHost.new

    assert_nil host.obstacle
    restart(host)
    advance(host, 9000)

    assert_equal %i[told TERM], @signals
    assert_equal "this process is about to end", host.obstacle
  end

  def test_whether_it_is_started_again_is_a_setting
    assert(stubbed { Memscope::Workers::SingleHost.new.supervised? })
  end

  def test_sidekiq_becomes_quiet_and_ends_after_its_last_job
    host = sidekiq
    @jobs << :job
    restart(host)
    advance(host, 60)

    assert_equal %i[told TSTP], @signals
    @jobs.clear
    2.times { advance(host, 10) }

    assert_equal %i[told TSTP TERM], @signals
    assert_equal "this process is about to end", host.obstacle
  end

  def test_sidekiq_may_have_fetched_a_job_before_it_became_quiet
    host = sidekiq
    restart(host)
    advance(host, 4)

    assert_equal %i[told TSTP], @signals
    advance(host, 1)

    assert_equal %i[told TSTP TERM], @signals
  end

  def test_sidekiq_ends_although_a_job_does_not
    host = sidekiq
    @jobs << :job
    restart(host)
    advance(host, 899)

    assert_equal %i[told TSTP], @signals
    advance(host, 1)

    assert_equal %i[told TSTP TERM], @signals
  end

  # Opening a file a second time is like another process's opening it: flock tells the two apart.
  def test_one_process_of_a_user_at_a_time
    restart(sidekiq)
    error = assert_raises(RuntimeError) { restart(sidekiq) }

    assert_equal "another process of this user is being restarted", error.message
    assert_equal %i[told TSTP], @signals
  end

  def test_the_next_one_after_its_end
    told, tell = IO.pipe
    pid = fork do
      restart(sidekiq)
      tell.close
      sleep
    end
    tell.close
    told.read

    assert_match(/another process/, assert_raises(RuntimeError) { restart(sidekiq) }.message)
    Process.kill(:KILL, pid) && Process.wait(pid)
    restart(sidekiq)

    assert_equal %i[told TSTP], @signals
  end

  def test_itself_is_its_only_member
    assert_empty Memscope::Workers::SingleHost.new.members
    own = Memscope::Worker.capture({ pid: Process.pid, role: :single, samples: 1, uss_bytes: 7, reasons: {} })
    host = Struct.new(:own).new(own)
    member = Memscope::Runtime.current.stub(:workers, host) { Memscope::Workers::SingleHost.new.members.first }

    assert_equal [Process.pid, 7, true, nil], [member.pid, member.private_bytes, member.booted?, member.exempt]
  end
end
