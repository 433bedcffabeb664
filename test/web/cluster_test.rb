# frozen_string_literal: true

require_relative "../support/web_case"
require_relative "../support/listening"

# The processes that a purge reaches, and its answer where some fail.
class WebClusterTest < WebCase
  include Listening

  def worker(pid, index, **values)
    Memscope::Worker.capture({ pid: pid, index: index, role: :worker, samples: 0, reasons: {}, **values })
  end

  def cluster(*workers, seconds: 30)
    Memscope::Web::ClusterCalls.new(Memscope::Web::Readings.new, workers: workers, timeouts: { purge: seconds })
  end

  def purge(cluster, **options) = cluster.purge(%i[gc], dry_run: false, **options)

  def refused(...) = assert_raises(Memscope::Web::HttpError) { purge(...) }

  def test_without_workers_it_is_this_process
    [nil, "all"].each { |given| assert_equal Process.pid, purge(cluster, worker: given).pid }
    assert_equal([400, 'worker: given "0", allowed: all.'],
                 refused(cluster, worker: "0").then { |error| [error.status, error.message] })
    assert_empty(Memscope::Web::ClusterCalls.workers { flunk })
  end

  def test_what_some_fail_by_does_not_hide_what_others_return
    other, stopped = Array.new(2) { listening }
    silent = start
    gone = Process.spawn("true").tap { |pid| Process.wait(pid) }
    Process.kill(:STOP, stopped.pid)
    pids = [stopped.pid, Process.pid, gone, other.pid, silent.pid]
    found = purge(cluster(*pids.each_with_index.map { |pid, index| worker(pid, index) }, seconds: 15))

    assert_equal pids, found.workers.map(&:pid)
    assert_equal([nil, Process.pid, nil, other.pid, nil], found.workers.map { |part| part.result&.pid })
    assert_match(/\Aprocess #{stopped.pid} does not answer within /, found.workers[0].reason)
    assert_equal "there is no process #{gone}", found.workers[2].reason
    assert_equal "there is no process #{gone}", refused(cluster(worker(gone, 0))).message[/there is.*(?=\.)/]
    assert_match(/process #{silent.pid} does not listen/, found.workers[4].reason)
    assert_equal found.returned_bytes, found.workers.filter_map(&:result).sum(&:returned_bytes)
    assert_equal found, Memscope::Purge::WorkerResults.from_h(JSON.parse(found.to_json))
    assert_includes found.to_s, "worker 2: there is no process #{gone}"
  ensure
    Process.kill(:CONT, stopped.pid)
  end

  # One limit for all together; each worker that it leaves out has that as its reason.
  def test_the_time_is_bounded
    stopped = listening.tap { |process| Process.kill(:STOP, process.pid) }
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    found = purge(cluster(*Array.new(9) { |index| worker(stopped.pid, index) }, seconds: 0.6))

    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - started, :<, 9 * 0.6
    assert_equal [nil, "timed out before the request was sent"],
                 [found.returned_bytes, found.workers.last.reason]
  ensure
    Process.kill(:CONT, stopped.pid)
  end

  # While Puma restarts there are two of an index.
  def test_of_one_index_it_is_the_younger
    other = listening
    old = worker(1, 0, booted_at: 1000)

    assert_equal other.pid, purge(cluster(old, worker(other.pid, 0, booted_at: 2000)), worker: "0").pid
    assert_equal([502, "Worker 0 (pid 1) failed: "],
                 refused(cluster(old, seconds: 1)).then { |error| [error.status, error.message[/.*: (?=process)/]] })
  end

  def test_a_process_that_allows_no_actions
    other = listening(env: { "MEMSCOPE_ACTIONS" => "off" })
    found = purge(cluster(worker(other.pid, 0), worker(Process.pid, 1)))

    assert_match(/this process allows no actions/, found.workers[0].reason)
    assert_equal Process.pid, found.workers[1].result.pid
  end
end
