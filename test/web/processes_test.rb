# frozen_string_literal: true

require_relative "../support/web_case"
require_relative "../support/listening"

# The processes that a purge reaches, and its answer if some of them fail.
class WebProcessesTest < WebCase
  include Listening

  def worker(pid, index, **values)
    Memscope::Worker.capture({ pid: pid, index: index, role: :worker, samples: 0, reasons: {}, **values })
  end

  def cluster(*workers, seconds: 30)
    Memscope::Web::Processes.new(workers: workers, timeouts: { purge: seconds })
  end

  def actions(cluster, **form)
    Memscope::Web::Actions.new(form.compact.to_h { |name, text| [name.to_s, [text]] }, cluster)
  end

  def purge(cluster, worker: nil) = actions(cluster, lever: "gc", worker: worker).purge.fetch(:outcomes)

  def purged(...) = purge(...).map { |outcome| outcome.result&.pid }

  def refused(...) = assert_raises(Memscope::Web::HttpError) { purge(...) }

  def test_without_workers_it_is_this_process
    [nil, "all"].each { |given| assert_equal [Process.pid], purged(cluster, worker: given) }
    assert_equal([400, 'worker: given "0", allowed: all.'],
                 refused(cluster, worker: "0").then { |error| [error.status, error.message] })
    assert_empty(Memscope::Web::Processes.new({ workers: -> { flunk } }).workers)
  end

  def test_what_some_fail_by_does_not_hide_what_others_return
    other, stopped = Array.new(2) { listening }
    silent = start
    gone = Process.spawn("true").tap { |pid| Process.wait(pid) }
    Process.kill(:STOP, stopped.pid)
    pids = [stopped.pid, Process.pid, gone, other.pid, silent.pid]
    found = purge(cluster(*pids.each_with_index.map { |pid, index| worker(pid, index) }, seconds: 15))

    assert_equal(pids, found.map { |outcome| outcome.place.pid })
    assert_equal([nil, Process.pid, nil, other.pid, nil], found.map { |outcome| outcome.result&.pid })
    assert_match(/\Aprocess #{stopped.pid} does not answer within /, found[0].reason)
    assert_equal "there is no process #{gone}", found[2].reason
    assert_equal "there is no process #{gone}", refused(cluster(worker(gone, 0))).message[/there is.*(?=\.)/]
    assert_match(/process #{silent.pid} does not listen/, found[4].reason)
    assert_page_of found
  ensure
    Process.kill(:CONT, stopped.pid)
  end

  def assert_page_of(outcomes)
    request = Memscope::Web::Request.new(Rack::MockRequest.env_for("/"))
    page = Memscope::Web::Actions::Returned.new(cluster, request, actions: true, outcomes: outcomes)
    parts = JSON.parse(page.to_json)["workers"]

    assert_equal(outcomes.map { |one| [one.place.index, one.place.pid, one.done?, one.reason] },
                 parts.map { |part| part.values_at("index", "pid", "done", "reason") })
    assert_equal outcomes[1].result, Memscope::Purge::Result.from_h(parts[1]["result"])
    assert_includes page.to_s, "#{outcomes[2].place}\n#{outcomes[2].reason}\n"
    assert_includes page.to_s, "#{outcomes[1].place}\n#{outcomes[1].result.to_s(unicode: true)}"
  end

  # There is one time limit for all workers together; each worker that it leaves out has it as the reason.
  def test_the_time_is_bounded
    stopped = listening.tap { |process| Process.kill(:STOP, process.pid) }
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    found = purge(cluster(*Array.new(9) { |index| worker(stopped.pid, index) }, seconds: 0.6))

    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - started, :<, 9 * 0.6
    assert_equal [nil, "timed out before the request was sent"], [found.first.result, found.last.reason]
  ensure
    Process.kill(:CONT, stopped.pid)
  end

  # While Puma restarts, two workers can have the same index.
  def test_of_one_index_it_is_the_younger
    other = listening
    old = worker(1, 0, booted_at: 1000)

    assert_equal [other.pid], purged(cluster(old, worker(other.pid, 0, booted_at: 2000)), worker: "0")
    assert_equal([502, "Worker 0 (pid 1) failed: "],
                 refused(cluster(old, seconds: 1)).then { |error| [error.status, error.message[/.*: (?=process)/]] })
  end

  # A form of the older worker's page must not change the younger one.
  def test_a_form_reaches_the_process_that_it_names
    other = listening
    both = cluster(worker(Process.pid, 0, booted_at: 1000), worker(other.pid, 0, booted_at: 2000), worker(1, 1))

    [other.pid, Process.pid].each do |pid|
      named = actions(both, lever: "gc", pid: pid.to_s)

      assert_equal([pid], named.purge.fetch(:outcomes).map { |outcome| outcome.result.pid })
      assert_equal pid, actions(both, do: "take", pid: pid.to_s).census.dig(:taken, :census).last.pid
    end
    assert_match(/process 2, but no worker has this pid/, failure { actions(both, lever: "gc", pid: "2").purge })
    assert_match(/process 1, but the request/, failure { actions(both, lever: "gc", pid: "1", worker: "0").purge })
    everywhere = actions(both, lever: "gc", pid: "2", worker: "all", dry_run: "1").purge

    assert_equal 3, everywhere.fetch(:outcomes).size
  end

  def failure(&) = assert_raises(Memscope::Web::HttpError, &).then { |error| "#{error.status} #{error.message}" }

  def test_all_of_a_single_process_is_the_process_that_the_form_names
    assert_match(/\A409 Nothing was done/, failure { actions(cluster, lever: "gc", worker: "all", pid: "1").purge })
  end

  def calls(workers, **timeouts)
    Memscope::Web::Processes.new(workers: workers, timeouts: timeouts)
  end

  KINDS = %i[ledger arenas ruby_heap mappings].freeze

  # A page shows the same process, no matter which one serves the request.
  def test_a_page_is_of_one_process
    other = listening
    calls = calls([worker(other.pid, 0), worker(Process.pid, 1)])
    { {} => other.pid, { "worker" => ["0"] } => other.pid, { "worker" => ["1"] } => Process.pid,
      { "pid" => [Process.pid.to_s] } => Process.pid }.each do |form, pid|
      place = calls.place(form)

      assert_equal pid, place.pid, form
      KINDS.each { |kind| assert_equal pid, calls.read(place, kind).pid, kind }
    end
    %w[worker pid].each do |name|
      error = assert_raises(Memscope::Web::HttpError) { calls.place({ name => ["7"] }) }

      assert_equal 400, error.status
      assert_match(/\A#{name}: given "7", allowed: \d+, \d+\.\z/, error.message)
    end
  end

  def test_a_diagnosis_of_another_process_has_its_forecast
    other = listening
    calls = calls([worker(other.pid, 0), worker(Process.pid, 1)])
    diagnosed = calls.read(calls.place({}), :diagnosis_with_forecast)

    assert_equal [other.pid, other.pid], [diagnosed.diagnosis, diagnosed.forecast].map(&:pid)
    assert_equal diagnosed.diagnosis.evidence.ledger, diagnosed.forecast.before
    assert_equal Memscope.purge(dry_run: true).levers.map(&:name), diagnosed.forecast.levers.map(&:name)
  end

  def test_what_is_wrong_with_an_option_is_said_by_the_other_process_too
    other = listening
    calls = calls([worker(other.pid, 0)])

    assert_match(/\A400 arena: given 9999, allowed: /,
                 failure { calls.read(calls.place({}), :size_classes, arena: 9999) })
  end

  # SIGSTOP may stop one thread of the process later than a request reaches another.
  def halt(process)
    Process.kill(:STOP, process.pid)
    sleep 0.01 until File.read("/proc/#{process.pid}/stat").include?(") T ")
  end

  # The next request does not ask that worker again at once.
  def test_a_worker_that_does_not_answer
    stopped = listening
    halt(stopped)
    calls = calls([worker(stopped.pid, 0)], reading: 1)
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    errors = Array.new(5) do
      assert_raises(Memscope::Web::HttpError) { calls.read(calls.place({}), :ledger) }
    end

    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - started, :<, 5, "five waits of a second"
    assert_equal [[502, "Worker 0 (pid #{stopped.pid}) failed: process #{stopped.pid} does not answer within 1 s, " \
                        "since it is stopped, as by SIGSTOP or by a debugger."]],
                 errors.map { |error| [error.status, error.message] }.uniq
  ensure
    Process.kill(:CONT, stopped.pid)
  end

  # Each process of the cluster takes readings for its own clients.
  def test_all_workers_together_cost_no_more_than_one
    now = 0.0
    taken = 0
    kinds = { ledger: -> { (now += 0.25).then { taken += 1 } } }
    workers = Array.new(4) { |index| worker(Process.pid, index) }
    calls = Memscope::Web::Processes.new(kinds, clock: -> { now }, workers: workers)
    read = -> { calls.read(calls.place({}), :ledger) }
    read.call
    now += 9.9
    read.call

    assert_equal 1, taken
    now += 0.2
    read.call

    assert_equal 2, taken
  end

  def test_a_process_that_allows_no_actions
    other = listening(env: { "MEMSCOPE_ACTIONS" => "off" })
    found = purge(cluster(worker(other.pid, 0), worker(Process.pid, 1)))

    assert_match(/this process allows no actions/, found[0].reason)
    assert_equal Process.pid, found[1].result.pid
  end
end

# Readings that all requests share.
class WebReadingsTest < WebCase
  def test_one_thread_at_a_time_takes_a_costly_reading
    running = most = 0
    slow = lambda do
      most = [most, running += 1].max
      sleep 0.05
      running -= 1
    end
    readings, counts = counting(arenas: slow, mappings: slow, diagnosis_with_forecast: slow)
    counting_kinds = %i[arenas mappings diagnosis_with_forecast]
    counting_kinds.map { |kind| Thread.new { readings.fetch(kind) } }.each(&:join)

    assert_equal [1, 3], [most, counts.size]
  end

  def test_a_reading_rests_ten_times_as_long_as_it_took
    now = 0.0
    { 0.01 => 1.0, 0.25 => 2.5, 7.0 => 30.0 }.each do |seconds, rest|
      readings, counts = counting(clock: -> { now }, ledger: -> { now += seconds })

      readings.fetch(:ledger)
      now += rest - 0.125
      readings.fetch(:ledger)

      assert_equal 1, counts[:ledger]
      now += 0.25
      readings.fetch(:ledger)

      assert_equal 2, counts[:ledger]
    end
  end

  # Consecutive scrapes reach different workers.
  def test_metrics_are_never_old
    readings, counts = counting(clock: -> { 0.0 }, metrics: -> {})
    2.times { readings.fetch(:metrics) }

    assert_equal 2, counts[:metrics]
  end

  # Those that were not used for longest are dropped first.
  def test_few_are_kept
    readings = Memscope::Web::Processes.new(clock: -> { 0.0 })
    object = ->(key) { readings.fetch(:profile, key, &-> { Object.new }) }
    first = object[0]
    second = object[1]
    (2..63).each(&object)

    assert_same first, object[0]
    object[64]

    assert_same first, object[0]
    refute_same second, object[1]
  end

  def test_a_forked_child_reads_for_itself
    readings, = counting(ledger: -> { Process.pid })
    readings.fetch(:ledger)
    reader, writer = IO.pipe
    Process.wait(fork { writer.write(readings.fetch(:ledger)).then { exit!(0) } })

    refute_equal Process.pid, Integer(reader.read_nonblock(20))
  end
end
