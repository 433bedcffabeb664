# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/puma_server"

class WorkersAcceptanceTest < MemscopeTest
  parallelize_me!

  MEBIBYTE = 1_048_576

  # The kernel's numbers for another process, in bytes.
  def smaps(pid)
    File.read("/proc/#{pid}/smaps_rollup").scan(/^(\w+): +(\d+) kB/).to_h { |name, kb| [name, kb.to_i * 1024] }
  end

  # CPU time of the thread with this name, in nanoseconds.
  def cpu_ns(pid, thread)
    tasks = Dir["/proc/#{pid}/task/*"].select { |task| File.read("#{task}/comm").chomp == thread[0, 15] }
    Integer(File.read("#{tasks.fetch(0)}/schedstat").split.first)
  end

  def all_reported?(workers, number)
    reported = workers.select { |worker| worker.role == :worker && worker.at }
    reported.size == number && workers.none? { |worker| worker.reasons.key?(:at) }
  end

  both_allocators "the processes of a preloaded cluster", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    PumaServer.run("workers 2; preload_app!", preload: preload) do |server|
      workers = server.workers_when("two workers") { |all| all_reported?(all, 2) }

      assert_equal %i[master worker worker], workers.map(&:role)
      assert_equal [nil, 0, 1], workers.map(&:index)
      assert_equal server.pid, workers.first.pid
      assert_equal server.pid, workers.pid, "the master answers"
      assert_equal "true", server.get("/loaded"), "of all of memscope"
      assert_two_threads server
      assert_history server
      assert_sizes server
      assert_cheap(server) { assert_unshared server }
      assert_replaced server
      assert_purged server unless preload
    end
  end

  # The kernel's sizes and memscope's are read while the processes run: at least once, those of the workers must agree
  # to within a quarter of a MiB. The master has read its own up to a minute before.
  def assert_sizes(server)
    workers = server.until_found("reading that agrees with the kernel's") do
      all = server.fresh_workers
      sum = all.workers.sum { |worker| smaps(worker.pid)["Pss"] }
      all if all.drop(1).all? { |worker| as_the_kernel_says?(worker) } && (sum - all.pss_bytes).abs < 8 * MEBIBYTE
    end

    workers.each { |worker| assert_equal worker.rss_bytes, worker.uss_bytes + worker.shared_bytes }
  end

  def as_the_kernel_says?(worker)
    kernel = smaps(worker.pid)
    pairs = [[kernel["Rss"], worker.rss_bytes], [kernel["Pss"], worker.pss_bytes],
             [kernel.values_at("Private_Clean", "Private_Dirty").sum, worker.uss_bytes],
             [kernel.values_at("Shared_Clean", "Shared_Dirty").sum, worker.shared_bytes],
             [kernel["Rss"], worker.ledger_rss_bytes]]
    pairs.all? { |said, read| (said - read).abs < MEBIBYTE / 4 }
  end

  # Whatever a worker does unshares memory: a GC unshares the pages that it marks, a request the slots that it fills. So
  # that is done first. Garbage of it, some MiB, is freed at any time.
  def assert_unshared(server)
    churned = []
    server.until_found("both") { (churned << server.get("/churn")).uniq.size == 2 }
    before = server.fresh_workers
    shared = before.workers.to_h { |worker| [worker.pid, smaps(worker.pid)["Shared_Dirty"]] }
    dirty = Integer(server.get("/dirty"))
    after = server.fresh_workers
    grown = after.workers.drop(1).to_h do |worker|
      [worker.pid, worker.unshared_since_fork_bytes - before[worker.index].unshared_since_fork_bytes]
    end

    assert_in_delta 64 * MEBIBYTE, grown.delete(dirty), 8 * MEBIBYTE
    assert_in_delta 64 * MEBIBYTE, shared[dirty] - smaps(dirty)["Shared_Dirty"], 8 * MEBIBYTE
    assert_in_delta 0, grown.values.first, 8 * MEBIBYTE
  end

  def assert_two_threads(server)
    server.workers.each do |worker|
      names = Dir["/proc/#{worker.pid}/task/*/comm"].map { |path| File.read(path).chomp }

      assert_equal ["memscope listen", "memscope sample"], names.grep(/\Amemscope/).sort, "of #{worker.role}"
    end
  end

  # A worker's history has the rows of the ledger that the worker reads anyway.
  def assert_history(server)
    history = Memscope::History.from_json(server.get("/history"))

    refute_equal server.pid, history.pid
    assert_includes history.series, :malloc
    assert_equal 10, history[:malloc].spacing_seconds
    assert_kind_of Integer, history.points(:malloc, step: 10).filter_map(&:last).last
  end

  # A reading every 10 seconds uses at most 0.5 % of a core, and so do readings at the shorter interval here.
  def assert_cheap(server)
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    worker = server.workers[0]
    before = cpu_ns(worker.pid, "memscope sampler")
    yield
    readings = server.workers[0].samples - worker.samples
    used = (cpu_ns(worker.pid, "memscope sampler") - before) / 1e9

    assert_operator readings, :>=, 1
    assert_operator used / readings, :<=, 0.05
    assert_operator used, :<=, (0.005 * (Process.clock_gettime(Process::CLOCK_MONOTONIC) - started)) + 0.05
  end

  def assert_replaced(server)
    killed = server.workers[1]
    Process.kill(:KILL, killed.pid)
    workers = server.workers_when("another worker 1") do |all|
      all_reported?(all, 2) && all[1] && all[1].pid != killed.pid
    end

    assert_equal 3, workers.count
    refute_includes workers.map(&:pid), killed.pid
    assert_operator workers[1].booted_at, :>, killed.booted_at
  end

  # Whichever worker answers: the purge reaches all workers, or the named one, but not their master.
  def assert_purged(server)
    pids = server.workers.drop(1).map(&:pid)

    assert_all_purged server, pids
    assert_one_purged server, pids
    answer = server.post("/memscope/purge", lever: "gc", worker: "7")

    assert_equal ["400", 'worker: given "7", allowed: 0, 1, all.'], [answer.code, JSON.parse(answer.body)["error"]]
    assert_page_says_whom_it_reaches server
    assert_match(/^worker 0 \(pid #{pids[0]}\)\nmemscope /, server.post("/memscope/purge.txt", lever: "gc").body)
    assert_includes server.post("/memscope/purge.html", lever: "gc").body, "2 of 2 workers answered"
    predicted = server.post("/memscope/purge.html", lever: "gc", dry_run: "1").body

    assert_includes predicted, "<h1>Nothing changed: prediction only</h1>"
  end

  SUMS = %w[returned_bytes returned_private_bytes].freeze

  def assert_all_purged(server, pids)
    [{ lever: "gc" }, { lever: "gc", worker: "all" }].each do |form|
      answer = JSON.parse(server.post("/memscope/purge", form).body)
      found = answer["workers"]

      SUMS.each do |name|
        parts = found.map { |one| one["result"].fetch(name) }

        assert_equal [parts.none?(nil) ? parts.sum : nil], [answer.fetch(name)]
      end
      assert_equal(pids.zip([0, 1], [nil, nil]), found.map { |one| one.values_at("pid", "index", "reason") })
      assert_equal(pids, found.map { |one| Memscope::Purge::Result.from_h(one["result"]).pid })
    end
    found = JSON.parse(server.post("/memscope/purge", lever: "gc", dry_run: "1").body)["workers"]

    assert_equal([[true, nil]] * 2, found.map { |one| one["result"].values_at("dry_run", "returned_bytes") })
  end

  # More requests than the right one of two workers would answer by chance.
  def assert_one_purged(server, pids)
    pids.each_with_index do |pid, index|
      [["/memscope/purge", { worker: index }], ["/memscope/purge?worker=#{index}", {}]].cycle(2) do |path, form|
        found = Memscope::Purge::Result.from_h(JSON.parse(server.post(path, lever: "gc", **form).body))

        assert_equal [pid, [:gc]], [found.pid, found.levers.map(&:name)]
      end
    end
  end

  def assert_page_says_whom_it_reaches(server)
    page = server.get("/memscope?findings=1&worker=1")

    assert_includes page, "all 2 workers, one after the other"
    assert_equal %w[1 all], page[%r{<select id="worker".*?</select>}m].scan(/value="(\w+)"/).flatten
  end

  # Without Rails, the error is raised where the setting is used: the server continues, and nobody gets access.
  def test_a_wrong_variable_stops_no_server
    PumaServer.run("workers 1; silence_single_worker_warning", env: { "MEMSCOPE_ACTIONS" => "of" }) do |server|
      assert_equal "403", server.post("/memscope/purge", lever: "gc").code
      assert_match(/\Aonly this process: .* does not listen/, server.workers.reasons[:workers])
      assert_match(/refused: access could not be decided: MEMSCOPE_ACTIONS: given "of"/, server.log)
      assert_operator Integer(server.get("/pid")), :positive?
    end
  end

  def test_a_phased_restart
    PumaServer.run("workers 2; preload_app! false", env: { "WITH_RAILS" => "1" }) do |server|
      before = server.workers_when("phase 0") { |all| all_reported?(all, 2) && all.map(&:phase) == [nil, 0, 0] }

      assert_equal "true", server.get("/railtie"), "the plugin must not hide memscope from Rails"
      Process.kill(:USR1, server.pid)
      after = server.workers_when("phase 1") { |all| all_reported?(all, 2) && all.map(&:phase) == [nil, 1, 1] }

      assert_equal server.pid, after.first.pid
      assert_empty before.drop(1).map(&:pid) & after.drop(1).map(&:pid)
      refute_match(/WARNING|not watched/, server.log)
    end
  end

  def test_workers_that_worker_0_forks
    PumaServer.run("workers 2; fork_worker 0; preload_app! false") do |server|
      before = server.workers_when("two workers") { |all| all_reported?(all, 2) && all[1].phase&.zero? }
      Process.kill(:URG, server.pid)
      after = server.workers_when("another worker 1") do |all|
        all_reported?(all, 2) && all.map(&:phase) == [nil, 1, 1] && all[1].pid != before[1].pid
      end

      assert_equal before[0].pid, after[0].pid
      assert_operator after[1].unshared_since_fork_bytes, :<, 20 * MEBIBYTE
      assert_operator after[0].unshared_since_fork_bytes, :<, 20 * MEBIBYTE
      assert_operator after[1].shared_bytes, :>, 80 * MEBIBYTE, "what worker 0 has loaded"
    end
  end

  def test_single_mode
    PumaServer.run("workers 0") do |server|
      workers = server.workers_when("a reading") { |all| all.first.samples.positive? }

      assert_equal([[:single, server.pid, nil]], workers.map { |one| [one.role, one.pid, one.index] })
      assert_match(/\Aonly this process: /, workers.reasons[:workers])
      server.until_found("all of memscope") { true if server.get("/loaded") == "true" }

      refute_match(/arning/, server.log)
      path = File.join(server.directory, "#{server.pid}.sock")
      server.until_found("a socket") { File.socket?(path) }

      assert_equal server.pid, Memscope::Client.at(path).call(:process_memory).pid
    end
  end

  def test_one_worker
    skip_under_sanitizer
    PumaServer.run("workers 1; silence_single_worker_warning", env: { "MEMSCOPE_BACKGROUND_THREAD" => "1" }) do |server|
      worker = server.workers_when("a worker") { |all| all_reported?(all, 1) }[0]

      assert_match(/jemalloc/, worker.reasons[:background_thread], "under glibc there are no background threads")
      assert_forked_child_is_none server
      assert_goes_on_while_its_master_cannot_keep_up server, worker.pid
    end
  end

  def assert_forked_child_is_none(server)
    workers = Memscope::Workers.from_h(JSON.parse(server.get("/fork")))

    assert_equal([[:single, nil]], workers.map { |one| [one.role, one.index] })
    assert_equal workers.pid, workers.first.pid
  end

  # More reports than the kernel queues for a master that receives none: ten, by default.
  def assert_goes_on_while_its_master_cannot_keep_up(server, worker)
    Process.kill(:STOP, server.pid)
    before = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    assert_equal 40, Integer(server.get("/flood"))
    assert_equal worker, Integer(server.get("/pid"))
    assert_match(/does not answer/, server.workers.reasons[:workers])
    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - before, :<, 20, "40 waits are longer"
    Process.kill(:CONT, server.pid)

    after = server.workers_when("an answer of the master") { |all| all.pid == server.pid }

    assert_equal [server.pid, worker], after.map(&:pid)
  end

  { "1" => true, "0" => false }.each do |setting, there|
    test = define_method("test_background_threads_of_jemalloc_are_#{'not_' unless there}armed_again_in_workers") do
      skip_under_sanitizer
      PumaServer.run("workers 2; preload_app!", preload: ChildProcess::ALLOCATORS[:jemalloc],
                                                env: { "MALLOC_CONF" => "background_thread:true",
                                                       "MEMSCOPE_BACKGROUND_THREAD" => setting }) do |server|
        workers = server.workers_when("two workers") { |all| all_reported?(all, 2) }
        names = workers.map { |one| Dir["/proc/#{one.pid}/task/*/comm"].map { |path| File.read(path).chomp } }

        assert_equal([true, there, there], names.map { |all| all.include?("jemalloc_bg_thd") })
      end
    end
    only_in_full(test) unless there
  end
end
