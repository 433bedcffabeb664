# frozen_string_literal: true

require_relative "../../test_helper"
require "logger"
require "memscope/remote/workers/cluster"
require "minitest/mock"
require_relative "../../support/notified"

class ControllerTest < MemscopeTest
  include Notified

  MEBIBYTE = 1 << 20
  HURRY = { readings: 1, sustained_seconds: 0, settle_seconds: 60, jitter: 0 }.freeze

  # A server of two workers, which does what it is asked, and notes it.
  class Host
    attr_reader :done, :said
    attr_accessor :members, :obstacle, :booted, :failure

    def initialize
      @done = []
      @said = []
      @booted = [false, 0]
      @members = [worker(0, 400 * MEBIBYTE), worker(1, 100 * MEBIBYTE)]
    end

    def worker(index, bytes, **rest)
      report = Memscope::Worker.capture({ index: index, pid: 1000 + index, role: :worker, samples: 9, uss_bytes: bytes,
                                          reasons: {}, **rest })
      Memscope::Workers::Controller.member(report, started_seconds: 0, booted: true)
    end

    def workers = 2
    def supervised? = true
    def advance = nil
    def successor(_outcome) = booted
    def restart(member) = act(:restart, member)
    def purge(member, levers) = act(:purge, member, levers)

    def act(*what)
      raise failure if failure

      done << what.map { |one| one.respond_to?(:pid) ? one.pid : one }
    end
  end

  def setup
    @host = Host.new
    @limit = 1000 * MEBIBYTE
    @working_set = 970 * MEBIBYTE
    @now = 10_000.0
    @settings = { policy: :act, policy_soft: 0.8, policy_interval_seconds: 900, policy_min_uptime_seconds: 1800 }
    @controller = Memscope::Workers::Controller.new(@host)
    said = @host.said
    @controller.define_singleton_method(:rules) { super().merge(HURRY) }
    @controller.define_singleton_method(:log) { |text| said << text }
  end

  # One step, some seconds after the last.
  def step(seconds = 60)
    @now += seconds
    cgroup = Memscope::Cgroup.capture({ version: :v2, limit_bytes: @limit, working_set_bytes: @working_set,
                                        reasons: {}, cost: Memscope::Cost.of(:T1) })
    setting = ->(name) { @settings[name] }
    Memscope::Cgroup.stub(:read, cgroup) do
      Memscope::Clock.stub(:boot, @now) do
        Memscope::Clock.stub(:now, @now) { Memscope::Configuration.stub(:effective, setting) { @controller.step } }
      end
    end
  end

  # In a Puma without workers, that is Puma's log.
  def test_logs_where_its_server_does_if_no_logger_is_set
    log = Class.new { define_method(:log) { |text| (@lines ||= []) << text } }.new
    logger = Struct.new(:logger)
    Memscope::Configuration.stub(:effective, nil) do
      Memscope::Workers::Controller.new(logger.new, log).log("policy: x")

      assert_nil Memscope::Workers::Controller.new(logger.new).log("policy: x")
      assert_output("memscope: policy: y") do
        Memscope::Workers::Controller.new(logger.new(Logger.new($stdout, formatter: ->(*, text) { text })), log)
                                     .log("policy: y")
      end
    end

    assert_equal ["memscope: policy: x"], log.instance_variable_get(:@lines)
  end

  def test_restarts_one_and_measures_what_that_returned
    step

    assert_equal [[:restart, 1000]], @host.done
    assert_equal({ restart: { executed: 1 } }, @controller.fields[:policy_decisions])
    assert_match(/\Apolicy: restart worker 0 \(pid 1000\): The working set is/, @host.said.last)
    @host.members = [@host.members.last]
    step

    assert_nil @controller.groups.last.outcomes.last.booted_seconds
    outcome = after_its_successor(30)

    assert_equal [1, 370 * MEBIBYTE], [outcome.failed_boots, outcome.returned_bytes]
    assert_includes @host.said, "policy: restart of worker 0 (pid 1000) returned 370.0 MiB, expected 300.0 MiB"
    assert_equal [[:restart, 1000]], @host.done
  end

  def test_subscribers_hear_of_a_restart
    @host.define_singleton_method(:restart) { |member, &told| super(member).tap(&told) }
    @settings[:policy] = :observe

    assert_empty(payloads(:restart) { step })
    setup
    @host.define_singleton_method(:restart) { |member, &told| super(member).tap(&told) }
    heard = payloads(:restart) { step }

    assert_equal([[:restart, 1000, 300 * MEBIBYTE]],
                 heard.map { |one| [one[:action], one[:worker][:pid], one[:expected_bytes]] })
    assert_match(/\AThe working set is/, heard.first[:reason])
  end

  # The outcome once the successor, which has booted at its second attempt, has this much private memory.
  def after_its_successor(mebibytes)
    @host.members = [@host.worker(0, mebibytes && (mebibytes * MEBIBYTE), pid: 2000), @host.members.last]
    @host.booted = [true, 1]
    @working_set = 600 * MEBIBYTE
    2.times { step }
    @controller.groups.last.outcomes.last
  end

  # What others do meanwhile to the working set does not count.
  def test_a_successor_that_needs_the_memory_again
    step
    outcome = after_its_successor(330)

    assert_predicate outcome, :useless?
    assert_includes @host.said, "policy: restart of worker 0 (pid 1000) returned 70.0 MiB, expected 300.0 MiB"
  end

  def test_a_successor_that_does_not_report_is_not_measured
    step

    assert_nil after_its_successor(nil).returned_bytes
    assert_equal 270 * MEBIBYTE, after_its_successor(130).returned_bytes
  end

  def test_what_a_purge_returned
    @host.members = [@host.worker(0, 400 * MEBIBYTE, purge_bytes: 300 * MEBIBYTE)]
    @working_set = 900 * MEBIBYTE
    step
    @host.members = [@host.worker(0, 100 * MEBIBYTE)]
    step

    assert_equal([%i[purge], [1000]], @host.done.map { |what| what.first(2) }.transpose)
    assert_equal [300 * MEBIBYTE], @controller.groups.last.outcomes.map(&:returned_bytes)
  end

  def test_observing_does_nothing_and_says_what_it_would_do
    @settings[:policy] = :observe
    20.times { step }

    assert_empty @host.done
    assert_operator @controller.fields[:policy_decisions].dig(:restart, :not_executed), :>=, 2
    assert_match(/\Apolicy: would restart worker 0/, @host.said[1])
    assert_equal 15, @controller.groups.size
  end

  def test_off_reads_nothing
    @settings[:policy] = :off
    step

    assert_empty @controller.groups
    assert_empty @host.said
  end

  def test_a_purge_by_the_allocators_lever
    @working_set = 900 * MEBIBYTE
    @host.members = [@host.worker(0, 400 * MEBIBYTE, purge_bytes: 90 * MEBIBYTE)]
    step

    assert_equal [[:purge, 1000, [Memscope::Purge.allocators_lever]]], @host.done
    step

    assert_in_delta @now - 60, @controller.groups.last.outcomes.first.booted_seconds
  end

  def test_nothing_is_read_or_done_while_the_server_restarts_all
    @working_set = 100 * MEBIBYTE
    step
    @host.obstacle = "it restarts all"
    @working_set = 970 * MEBIBYTE
    step

    assert_equal "Nothing to do: it restarts all.", @controller.fields[:policy_decision]
    assert_equal 1, @controller.groups.size
    assert_empty @host.done
  end

  def test_a_failure_is_logged_and_counts_for_the_interval
    @host.failure = "it is being stopped"
    4.times { step }

    assert_equal({ not_executed: 1 }, @controller.fields[:policy_decisions][:restart])
    assert_match(/Not done: it is being stopped \(RuntimeError\)\z/, @host.said.grep(/restart worker/).first)
  end

  def test_an_error_is_logged_once
    @host.members = nil
    3.times { step }

    assert_equal 1, @host.said.grep(/an error/).size
  end

  def test_an_error_and_a_reason_that_alternate_are_logged_once_each
    full = [@host.worker(0, 400 * MEBIBYTE), @host.worker(1, 400 * MEBIBYTE)]
    @working_set = 900 * MEBIBYTE
    90.times do |number|
      @host.members = (full if number.even?)
      step
    end
    said = @host.said.map { |line| line[/acts|The working set|an error/] }

    assert_equal ["acts", "The working set", "an error"], said
  end

  def test_a_reason_that_comes_again_after_an_hour_is_logged_again
    @host.members = [@host.worker(0, 400 * MEBIBYTE), @host.worker(1, 400 * MEBIBYTE)]
    lines = [900, 100, 900, 100, 900].zip([0, 60, 60, 60, 4000]).map do |working_set, seconds|
      @working_set = working_set * MEBIBYTE
      step(seconds + 60)
      @host.said.grep(/no worker to restart/).size
    end

    assert_equal [1, 1, 1, 1, 2], lines
  end

  def test_the_log_says_what_to_expect
    @working_set = 100 * MEBIBYTE
    2.times { step }
    @settings[:policy] = :observe
    @limit = nil
    2.times { step }

    assert_equal ["policy: acts; limit 1,000.0 MiB, soft 80 %",
                  "policy: observes, but there is no memory limit: it does nothing"], @host.said
  end

  # The numbers of the last report are those of a while ago.
  def test_of_a_worker_that_does_not_report_everything_is_unknown
    known, silent = [{}, { at: "no report for 90 s" }].map { |reasons| member(:leak, reasons: reasons) }

    assert_equal [400 * MEBIBYTE, MEBIBYTE, 1], known
    assert_equal [nil], silent.uniq
  end

  def test_only_a_leak_has_a_rate
    assert_equal [400 * MEBIBYTE, nil, 1], member(:steady)
  end

  def member(kind, reasons: {})
    verdict = Memscope::Verdict.capture({ verdict: kind, shares: {}, bytes_per_hour: MEBIBYTE, eta_seconds: 9,
                                          confidence: 1.0, evidence: {}, reasons: {}, cost: Memscope::Cost.of(:T0) })
    report = { verdict: verdict, purge_bytes: 1, reasons: reasons }
    @host.worker(0, 400 * MEBIBYTE, **report).to_h.values_at(:private_bytes, :leak_bytes_per_hour, :purge_bytes)
  end
end
