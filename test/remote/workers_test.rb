# frozen_string_literal: true

require_relative "../test_helper"
require "minitest/mock"
require "memscope/remote/workers/cluster"

class WorkersTest < MemscopeTest
  Handle = Struct.new(:pid, :index, :phase)

  def worker(**fields)
    Memscope::Worker.capture({ index: 0, pid: Process.pid, role: :worker, samples: 1, reasons: {}, **fields })
  end

  def workers(*all) = Memscope::Workers.of(all, since: 0)

  # Runs a cluster as the master's thread does, until the block returns.
  def with_cluster
    cluster = Memscope::Workers::Cluster.new
    cluster.run
    sleep 0.01 until Memscope::Workers.current == cluster && cluster.read
    yield cluster
  ensure
    Memscope::Runtime.current.sampling.cancel(cluster)
    Memscope::Runtime.current.workers = nil
  end

  # A process that does what a worker does at its boot, and then waits.
  def forked(cluster, index)
    reader, writer = IO.pipe
    pid = fork do
      cluster.boot_worker(index)
      writer << "."
      sleep
    end
    reader.read(1)
    yield pid
  ensure
    Process.kill(:KILL, pid)
    Process.wait(pid)
  end

  def eventually
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
    until (found = yield)
      flunk "waited in vain" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.01
    end
    found
  end

  def test_a_purge_is_predicted_by_what_no_other_process_shares
    skip "only glibc's free pages are known one by one" unless Memscope.allocator.name == :glibc

    all, own, least = child_json(<<~RUBY)
      kept = Array.new(20_000) { "a" * 1500 }
      kept.select!.with_index { |_string, index| (index % 100).zero? } # so that free itself returns nothing
      GC.start
      Process.wait(fork do
        ledger = Memscope::Ledger.read(deep: true)
        detail = ledger.rows.find { |row| row.id == :malloc }.detail
        p [*detail.values_at(:trimmable_bytes, :trimmable_private_bytes), Memscope::Purge.least_bytes(ledger)]
      end)
    RUBY

    assert_operator own, :<, all
    assert_equal own, least
  end

  # With fork_worker, Puma's hook after a fork runs in worker 0.
  def test_the_host_learns_of_each_worker_that_begins
    begun = []
    with_cluster do |cluster|
      host = Object.new
      host.define_singleton_method(:reported) { |worker| begun << worker.pid }
      cluster.instance_variable_set(:@host, host)
      pids = Array.new(2) { forked(cluster, 3) { |pid| eventually { begun.include?(pid) } && pid } }

      assert_equal pids, begun
    end
  end

  def test_a_process_without_a_cluster
    read = Memscope.workers
    alone = read.first

    assert_equal [1, :single, nil, Process.pid], [read.count, alone.role, alone.index, alone.pid]
    assert_equal alone.rss_bytes, alone.uss_bytes + alone.shared_bytes
    assert_equal alone.ledger_rss_bytes, alone.rows.values.sum
    assert_equal "only this process: it is not in a Puma cluster with plugin :memscope", read.reasons[:workers]
    assert_equal %i[unshared_since_fork_bytes], alone.reasons.keys
    assert_equal read, Memscope::Workers.from_h(JSON.parse(read.to_json))
    assert_match(/\A\d{4}-\d\d-\d\dT[\d:.]+Z\z/, alone.to_h[:booted_at])
    assert_predicate alone.booted_at, :utc?
  end

  def test_a_worker_reports_what_it_no_longer_shares
    with_cluster do |cluster|
      forked(cluster, 3) do |pid|
        cluster.saw(Handle.new(pid, 3, 7))
        read = eventually { cluster.read.then { |all| all if all[3]&.at } }

        assert_equal([[:master, nil, nil], [:worker, 3, 7]], read.map { |one| [one.role, one.index, one.phase] })
        assert_equal pid, read[3].pid
        assert_operator read[3].unshared_since_fork_bytes, :<, read[3].rss_at_boot_bytes
      end
      assert_equal [:master], cluster.read.map(&:role), "what is gone is not listed"
    end
  end

  def test_a_worker_that_has_not_reported
    with_cluster do |cluster|
      cluster.saw(Handle.new(Process.ppid, 0, 1))
      silent = cluster.read[0]

      assert_equal [Process.ppid, 1, nil, 0], [silent.pid, silent.phase, silent.at, silent.samples]
      assert_equal({ at: "it has not reported yet" }, silent.reasons)
      assert_nil cluster.read.pss_bytes
      assert_match(/^ *worker 0 +\d+ +[–-] /, cluster.read.to_s)
    end
  end

  def test_whatever_arrives_the_master_goes_on
    with_cluster do |cluster|
      writer = cluster.instance_variable_get(:@channel).instance_variable_get(:@writer)
      texts = ["", "{", "[]", "\xFF\x00", '{"pid":"x"}', worker(index: nil).to_json, worker(role: :master).to_json,
               "x" * 90_000, worker(index: 5).to_json]
      texts.each { |text| writer.send(text, 0) }

      assert_equal([nil, 5], eventually { cluster.read.then { |all| all.map(&:index) if all.count > 1 } })
    end
  end

  # Bytes that are no UTF-8 in a symbol raise an EncodingError, which is no ArgumentError.
  def test_no_report_ends_the_thread
    good = worker(index: 5).to_json
    bad = [good.sub("worker", "wor\xFFker"), good.sub('"reasons":{', "\"reasons\":{\"\xFF\":\"x\""), "[" * 200,
           good.sub('"samples":1', '"samples":1e400'), good.sub('"at":null', '"at":1e400'),
           good.sub("worker", '\ud800'), good.encode("UTF-16LE"), "1" * 60_000, "null",
           '{"pid":1,"pid":2}', "\0" * 100].map(&:b)
    _out, warned = capture_io do
      with_cluster do |cluster|
        writer = cluster.instance_variable_get(:@channel).instance_variable_get(:@writer)
        [*bad, good].each { |text| writer.send(text, 0) }

        assert(eventually { cluster.read[5] })
      end
    end

    assert_operator warned.scan("memscope: a report was dropped").size, :<=, 1, "said once"
  end

  def test_a_later_report_that_is_not_understood
    with_cluster do |cluster|
      writer = cluster.instance_variable_get(:@channel).instance_variable_get(:@writer)
      good = worker(index: 5).to_json
      writer.send(good, 0)
      eventually { cluster.read[5] }
      writer.send(good.sub('"samples":1', '"samples":"\xFF"').b, 0)
      told = eventually { cluster.read[5]&.reasons&.fetch(:at, nil) }

      assert_match(/\Aits last report could not be understood: /, told)
      writer.send(good, 0)
      eventually { cluster.read[5]&.reasons == {} }
    end
  end

  # Puma's master seldom collects garbage: what it allocates for each report and each question stays for long.
  def test_the_master_answers_without_parsing_reports
    with_cluster do |cluster|
      writer = cluster.instance_variable_get(:@channel).instance_variable_get(:@writer)
      writer.send(worker(index: 5).to_json, 0)
      eventually { cluster.read[5] }
      cluster.saw(Handle.new(Process.pid, 5, 7))
      request = JSON.generate(call: :workers)
      Memscope::Calls.answer(request)
      parsed = ->(_hash) { flunk "a report was parsed" }
      answer = Memscope::Worker.stub(:from_h, parsed) { Memscope::Calls.answer(request) }
      read = Memscope::Workers.from_h(JSON.parse(answer).fetch("ok"))

      assert_equal cluster.read.workers, read.workers
      assert_equal 7, read[5].phase
    end
  end

  def test_the_command
    command = [*ChildProcess.ruby, File.join(ChildProcess::ROOT, "exe/memscope")]
    ran = ChildProcess.run_command(*command, "report", "--workers", "--json")

    assert_equal "workers", ran.json["kind"]
  end
end
