# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/remote/workers/cluster"

class PumaHostTest < MemscopeTest
  Handle = Struct.new(:index, :pid, :phase, :booted, :term, keyword_init: true) do
    def booted? = booted
    def term? = term == true
  end
  Cluster = Struct.new(:handles, :read)
  Outcome = Struct.new(:worker)

  Launcher = Struct.new(:options, :log_writer)

  def setup
    @children = Array.new(2) { Process.spawn("sleep", "60") }
    @cluster = Cluster.new(handles, @children.map.with_index { |pid, index| report(index, pid) })
  end

  def teardown
    @children.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
  rescue Errno::ESRCH, Errno::ECHILD
    nil
  end

  def report(index, pid)
    Memscope::Worker.capture({ index: index, pid: pid, role: :worker, samples: 1, uss_bytes: 1 << 20, reasons: {} })
  end

  def handles(**changes)
    @children.each_with_index.to_h do |pid, index|
      special = index.zero? ? changes : {}
      [pid, Handle.new(index: index, pid: pid, phase: 0, booted: true, **special)]
    end
  end

  def host(**options)
    @launcher = Launcher.new({ workers: 2, **options })
    Memscope::Workers::PumaHost.new(@cluster, @launcher)
  end

  def test_members_as_puma_knows_them
    first, second = host.members

    assert_equal [0, @children[0], true, 1 << 20], [first.index, first.pid, first.booted?, first.private_bytes]
    assert_nil first.exempt
    assert_in_delta Process.clock_gettime(Process::CLOCK_BOOTTIME), second.started_seconds, 5
  end

  def test_worker_0_is_exempt_if_the_others_are_forked_from_it
    assert_equal ["the other workers are forked from it", nil], host(fork_worker: 1000).members.map(&:exempt)
  end

  def test_a_worker_that_is_being_stopped_does_not_serve
    @cluster.handles = handles(term: true)

    assert_equal [false, true], host.members.map(&:booted?)
  end

  RESTARTS = "Puma boots its workers or restarts all of them"

  def test_nothing_is_done_while_puma_boots
    @cluster.handles = handles.first(1).to_h
    puma = host

    assert_equal RESTARTS, puma.obstacle
    @cluster.handles = handles

    assert_nil puma.obstacle
    @cluster.handles = handles(booted: false)

    assert_equal RESTARTS, puma.obstacle
  end

  # In a phased restart, and in a refork, each worker goes into the next phase: worker 0 of a refork without a restart.
  def test_nothing_is_done_while_puma_restarts_all
    puma = host
    all = handles.each_value { |handle| handle.phase = 1 }
    [handles(term: true), handles(phase: 1), all.first(1).to_h].each do |meanwhile|
      @cluster.handles = meanwhile

      assert_equal RESTARTS, puma.obstacle
    end
    @cluster.handles = all

    assert_nil puma.obstacle
  end

  def test_nothing_is_done_while_puma_stops
    puma = host
    @cluster.handles = handles.each_value { |handle| handle.term = true }

    assert_equal "Puma is stopping", puma.obstacle
    error = assert_raises(RuntimeError) { puma.restart(puma.members.first) { flunk } }

    assert_equal "Puma is stopping", error.message
  end

  def test_a_restart_ends_the_worker_and_no_other_process_of_its_pid
    puma = host
    member = puma.members.last
    Process.kill(:KILL, member.pid) && Process.wait(member.pid)
    error = assert_raises(RuntimeError) { puma.restart(member) { flunk } }

    assert_equal "the worker: not there", error.message
    told = false
    puma.restart(puma.members.first) { told = true }
    _pid, status = Process.wait2(@children.first)

    assert_equal [Signal.list["TERM"], true], [status.termsig, told]
  end

  def test_a_successor_and_the_boots_that_failed_before_it
    puma = host
    outcome = Outcome.new(report(1, @children.last))
    reports = [[1, 1], [1, @children.last], [0, 2], [1, 3], [1, 3]].map { |index, pid| report(index, pid) }
    puma.reported(reports.first)
    puma.members
    puma.restart(puma.members.last) { nil }

    assert_equal [false, 0], puma.successor(outcome)
    reports.each { |report| puma.reported(report) }

    assert_equal [false, 1], puma.successor(outcome)
    @cluster.handles = { 1 => Handle.new(index: 1, pid: 1, booted: true) }

    assert_equal [true, 1], puma.successor(outcome)
  end

  def test_another_worker_has_died_meanwhile
    puma = host
    member = puma.members.last
    @cluster.handles = handles.except(@children.first)
    error = assert_raises(RuntimeError) { puma.restart(member) { flunk } }

    assert_equal RESTARTS, error.message
    assert_nil Process.wait(member.pid, Process::WNOHANG)
  end
end
