# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/policy_puma"
require "memscope/remote/workers/cluster"

# The policy in a real Puma under load: `rake battery:policy_puma` for Puma 5, 6, 7 and 8 with 20 restarts each.
class PolicyPumaTest < MemscopeTest
  parallelize_me!

  # Where rake battery:policy_puma has installed the versions.
  GEMS = ENV.fetch("MEMSCOPE_PUMA_GEMS", nil)
  VERSIONS = GEMS ? Dir[File.join(GEMS, "gems/puma-*")].map { |path| path[/puma-(.*)/, 1] }.sort : [nil]
  RESTARTS = Integer(ENV.fetch("MEMSCOPE_POLICY_RESTARTS", "1"))

  def setup = skip_under_sanitizer

  VERSIONS.each do |version|
    define_method(:"test_restarts_without_a_failed_request_#{version || 'of_the_bundle'}") do
      PolicyPuma.run(version, gems: GEMS) do |server|
        answered, failed = server.under_load { measured(server).size >= RESTARTS }

        assert_empty failed
        assert_operator answered, :>, 100
        print "[Puma #{version}: #{measured(server).size} restarts, #{answered} requests] " if GEMS

        assert_one_at_a_time server
      end
    end
  end

  # Puma's own restart of all workers, one after the other, while the policy would restart one.
  def test_waits_while_puma_restarts_its_workers
    skip "only in rake battery:policy_puma" unless GEMS

    PolicyPuma.run(configuration: "preload_app! false") do |server|
      _answered, failed = server.under_load do
        measured(server).any? && (@asked ||= Process.kill(:USR1, server.pid)) && server.log.scan(/phase: 1$/).size > 3
      end
      restart = server.log[/Starting phased worker restart.*(?:booted in .*phase: 1\n.*){3}/m]

      assert_empty failed
      assert_empty restart.lines[0..-2].grep(/policy: restart worker/).grep_v(/Not done: Puma boots its workers/)
    end
  end

  # A worker that is stopped sends no reports: the others are restarted meanwhile, and it is left alone until it runs.
  def test_leaves_a_stopped_worker_alone
    skip "only in rake battery:policy_puma" unless GEMS

    PolicyPuma.run(configuration: "worker_timeout 600") do |server|
      server.until_found("workers") { server.log.scan(/^.* booted in /).size >= PolicyPuma::WORKERS }
      stopped = Integer(server.log[/Worker 1 \(PID: (\d+)\) booted/, 1])
      Process.kill(:STOP, stopped)
      server.until_found("restarts") { measured(server).size >= 4 }

      assert_empty server.decisions.grep(/ \(pid #{stopped}\)/)
      assert_includes server.workers, stopped
      Process.kill(:CONT, stopped)
      server.until_found("its restart") { server.decisions.grep(/restart worker \d \(pid #{stopped}\)/).any? }
    end
  end

  # With fork_worker, the other workers are worker 0's children.
  def test_restarts_no_worker_that_others_are_forked_from
    skip "only in rake battery:policy_puma" unless GEMS

    PolicyPuma.run(configuration: "fork_worker") do |server|
      _answered, failed = server.under_load { measured(server).size >= 3 }

      assert_empty failed
      assert_equal %w[1 2], server.decisions.filter_map { |line| line[/restart worker (\d)/, 1] }.uniq.sort
    end
  end

  # No signal, and no call to a worker: strace would see either.
  only_in_full def test_observing_changes_nothing
    skip "strace is not installed" unless ENV["CI"] || system("strace", "--version", out: File::NULL)

    Dir.mktmpdir do |traces|
      trace = File.join(traces, "trace")
      calls = "trace=getpgid,kill,tgkill,pidfd_open,pidfd_send_signal,connect"
      PolicyPuma.run(setting: "observe", through: ["strace", "-D", "-f", "-o", trace, "-e", calls]) do |server|
        server.until_found("workers") { server.workers.size == PolicyPuma::WORKERS }
        workers = server.workers
        server.under_load { server.decisions.grep(/would restart worker/).any? }

        assert_equal workers, server.workers
        assert_match(/getpgid\(\d+\)/, File.read(trace), "whether a worker is alive")
        assert_empty File.readlines(trace).grep(/pidfd|connect\(|kill\(/)
        refute_match(/policy: (?!observes|would|The working set)/, server.log)
      end
    end
  end

  def measured(server) = server.decisions.grep(/restart of .* returned/)

  # Each restart is followed by its measurement before the next. Half of them return most of what they should, on a
  # machine of any speed.
  def assert_one_at_a_time(server)
    steps = server.decisions.filter_map { |line| line[/policy: restart (worker|of .* returned)/, 1]&.split&.last }

    assert_equal %w[worker returned], steps.each_slice(2).first(RESTARTS).uniq.flatten
    returned = measured(server).map { |line| line[/returned (-?[\d.,]+) MiB/, 1].to_s.delete(",").to_f }

    assert_operator returned.sort[returned.size / 2], :>, 32
    refute_match(/Not done|an error/, server.log)
  end
end
