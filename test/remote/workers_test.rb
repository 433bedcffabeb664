# frozen_string_literal: true

require_relative "../test_helper"
require "minitest/mock"
require_relative "../support/histories"
require "memscope/remote/workers/cluster"

class WorkersTest < MemscopeTest
  MEBIBYTE = 1_048_576
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

  def test_a_purge_under_jemalloc_returns_what_is_predicted
    skip_under_sanitizer
    keeping = { "MALLOC_CONF" => "dirty_decay_ms:-1" } # jemalloc would return some by itself
    predicted, returned = child_json(<<~RUBY, preload: "libjemalloc.so.2", env: keeping)
      require "json"
      kept = Array.new(20_000) { "a" * 3000 }
      kept.select!.with_index { |_string, index| (index % 100).zero? } # so that free itself returns nothing
      GC.start
      predicted = Memscope::Workers::Reporter.new(role: :single).read.purge_bytes
      puts JSON.generate([predicted, Memscope.purge(:purge).returned_bytes])
    RUBY

    assert_operator predicted, :>, 10 * MEBIBYTE
    assert_operator returned, :>=, 0.9 * predicted
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

  both_allocators "a report has what metrics tell of the process" do |preload|
    report = child_json(<<~RUBY, requires: %w[json memscope/remote/workers], preload: preload)
      sampler = Memscope::Workers::Reporter.new(role: :worker, index: 0)
      all = Array.new(9) { GC.start; sampler.read }
      puts JSON.generate(size: all.last.to_json.bytesize, again: all.map { |one| Memscope::Worker.from_h(JSON.parse(one.to_json)) == one },
                         sums: all.map { |one| [one.leaves.values.sum, one.rows.values.sum] },
                         totals: all.map { |one| [one.snapshot.gc[:total_allocated_objects], one.snapshot.gc[:count],
                                                  one.snapshot.jemalloc&.[](:small_nmalloc)] },
                         arenas: all.last.arenas, checks: all.map(&:unverified_rows),
                         costs: all.map { |one| one.costs[:snapshot][:wall_us] }, read: all.last.costs.keys)
    RUBY

    assert_operator report["size"], :<, 8192
    assert_equal [true], report["again"].uniq
    report["sums"].each { |leaves, rows| assert_equal rows, leaves }
    report["totals"].map(&:compact).transpose.each { |numbers| assert_equal numbers.sort, numbers }
    assert_equal preload ? 3 : 2, report["totals"].first.compact.size unless ChildProcess::SANITIZER

    assert_equal [nil, %w[ledger process_memory snapshot]], report.values_at("arenas", "read")
    # In microseconds: tier T1.
    assert_operator report["costs"].min, :<, 1000
  end

  { jemalloc: "allocated_bytes", glibc: "system_bytes" }.each do |allocator, level|
    define_method("test_arenas_are_reported_where_metrics_are_to_have_them_under_#{allocator}") do
      skip_under_sanitizer
      env = { "MEMSCOPE_METRICS_ARENAS" => "1", "MEMSCOPE_METRICS_LEDGER_INTERVAL" => "60" }
      options = { requires: %w[json memscope/remote/workers], preload: ChildProcess::ALLOCATORS[allocator], env: env }
      report = child_json(<<~RUBY, **options)
        worker = Memscope::Workers::Reporter.new(role: :worker, index: 0).read
        puts JSON.generate([worker.arenas, worker.costs.keys, Memscope::Worker.from_h(JSON.parse(worker.to_json)) == worker])
      RUBY

      assert_operator report.first.fetch(level).fetch("0"), :>, 0
      assert_equal ["arenas", true], [report[1].last, report[2]]
    end
  end

  # 60 tags with the longest names: they fit into a report, but not beside the most arenas.
  def test_the_first_tags_are_reported
    report = child_json(<<~RUBY, requires: %w[json memscope memscope/remote/workers])
      Memscope::ObjectProfile.start(budget: 1)
      60.times { |tag| (60 - tag).times { Memscope.tag("é" * 31 + tag.to_s) { Array.new(50) { Object.new } } } }
      2.times { GC.start }
      worker = Memscope::Workers::Reporter.new(role: :worker, index: 0).read
      puts JSON.generate([worker.to_h, Memscope.tags.bounded.map(&:to_h)])
    RUBY
    reported = Memscope::Worker.from_h(report.first)

    assert_equal [51, "[other]", 1830], [reported.tags.size, reported.tags.last.name, reported.tags.sum(&:runs)]
    assert_equal report.last.map { |row| row["runs"] }, reported.tags.map(&:runs)
    assert_operator reported.to_json.bytesize, :<, 32_768
    assert_includes reported.costs.keys, :tags
  end

  # Otherwise its counters would seem to fall once the master answers again.
  def test_a_worker_tells_of_itself_what_went_out
    sent = true
    watch = Memscope::Workers::Watch.new(Memscope::Workers::Reporter.new(role: :worker, index: 0)) { sent }
    watch.step
    known = watch.latest
    sent = false
    watch.step

    assert_same known, watch.latest
    sent = true
    watch.step

    refute_same known, watch.latest
  end

  # Workers that were forked together would otherwise be refused together, again and again.
  def test_a_refused_report_is_tried_again_at_another_moment
    sampler = Memscope::Workers::Reporter.new(role: :worker, index: 0)
    reading = sampler.read
    watch = Memscope::Workers::Watch.new(sampler) { false }
    pauses = sampler.stub(:read, reading) { Array.new(8) { watch.step } }

    assert_equal 8, pauses.uniq.size
    pauses.each { |seconds| assert_includes 1..9, seconds }
  end

  def test_they_are_subtracted_by_pid
    diff = Memscope.workers - Memscope.workers

    assert_equal [Process.pid.to_s], diff[:workers].rows.map(&:name)
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

      assert_match(/\Aits last report is not understood: /, told)
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

  def test_a_reading_that_takes_long_is_taken_seldom
    sampler = Object.new
    def sampler.read
      stop = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.1
      nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < stop
    end

    broken = Object.new
    def broken.read = raise(IOError, "no")

    assert_operator Memscope::Workers::Watch.new(sampler).step, :>=, 20
    assert_in_delta 10, Memscope::Workers::Watch.new(broken).step
  end

  # Otherwise the policy would never again decide by its reports.
  def test_a_failed_reading_is_told_by_the_next_report_alone
    sampler = Memscope::Workers::Reporter.new(role: :worker, index: 0)
    told = []
    watch = Memscope::Workers::Watch.new(sampler) { |worker| told << worker.reasons[:at] }
    sampler.stub(:read, -> { raise IOError, "no" }) { watch.step }
    2.times { watch.step }

    assert_equal ["a reading failed: no (IOError)", nil], told
  end

  # glibc gives that thread an arena, so that the reading leaves alone what the main thread shares with a master.
  def test_the_first_reading_is_there_at_once_but_not_from_this_thread
    read_in = nil
    sampler = Memscope::Workers::Reporter.new(role: :worker, index: 0)
    reading = sampler.read
    watch = Memscope::Workers::Watch.new(sampler)
    sampler.stub(:read, -> { reading.tap { read_in = Thread.current } }) { watch.start }

    assert_same reading, watch.own
    assert_equal "memscope sampler", read_in.name
  ensure
    Memscope::Runtime.current.sampling.cancel(watch)
  end

  def test_watch_starts_a_killed_thread_again
    counted = child_json(<<~RUBY, requires: ["json"])
      Memscope.configure { |c| c.history = false }
      threads = -> { Thread.list.select { |thread| thread.name == "memscope sampler" } }
      Memscope::Workers.watch
      threads.call.each { |thread| thread.kill.join }
      killed = threads.call.size
      2.times { Memscope::Workers.watch }
      puts JSON.generate([killed, threads.call.size, Memscope::Workers.current.own.samples])
    RUBY

    assert_equal [0, 1, 2], counted
  end

  def test_a_worker_whose_master_does_not_answer_knows_itself
    watch = Memscope::Workers::Watch.new(Memscope::Workers::Reporter.new(role: :worker, index: 1), master_pid: 1)
    read = watch.read(Memscope::Workers)

    assert_equal([[:worker, 1]], read.map { |one| [one.role, one.index] })
    assert_match(/\Aonly this process: Puma's master \(pid 1\) does not answer: \S/, read.reasons[:workers])
  end

  def test_the_table_fits_the_page
    large = { rss_bytes: 9_999 * MEBIBYTE, pss_bytes: 9_999 * MEBIBYTE, uss_bytes: 9_999 * MEBIBYTE,
              shared_bytes: 9_999 * MEBIBYTE, unshared_since_fork_bytes: 9_999 * MEBIBYTE, pid: 4_194_304,
              booted_at: 0, at: 0, samples: 9, phase: 0,
              rows: { malloc: 9_999 * MEBIBYTE, ruby_heap: 999 * MEBIBYTE, files: 99, ruby_internal: 9, jit: 7,
                      stacks: 1, memscope: 0 } }
    read = workers(worker(**large, role: :master, index: nil, phase: nil), worker(**large, index: 12),
                   worker(**large, index: 12, phase: 1, reasons: { at: "no report for 99 s" }))
    text = read.to_s

    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 80
    assert_match(/^ *all +29,997\.0 +29,997\.0$/, text)
    assert_match(/others +\S* ?RSS$/, text)
    assert_match(/^  worker 12: at: no report for 99 s$/, text)
    assert_predicate Memscope::Report.render(read, unicode: false), :ascii_only?
  end

  # The page shows the table of the text.
  def test_a_column_is_in_text_and_metrics
    head = workers(worker).to_s.lines.find { |line| line.include?(" pid ") && line.include?("MiB") }
    names = Memscope::Metrics::DEFINITIONS.map(&:name)

    assert_equal Memscope::Worker::COLUMNS.values.map(&:first), head.split[2...-1]
    Memscope::Worker::COLUMNS.keys.drop(1).each { |field| assert_includes names, "memscope_worker_#{field}" }
  end

  def test_the_verdict_of_each_worker
    leak = Histories.judge(5) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour } }
    read = workers(worker(verdict: leak), worker(index: 1))
    text = read.to_s

    early = Histories.judge(0.1) { |hour| { malloc: 900 * hour, malloc_in_use: 900 * hour } }
    young = workers(worker(verdict: early)).to_s

    assert_match(/^ *worker 0 .* too early$/, young)
    assert_match(/^  worker 0: Too early to tell: .* needs 54 minutes more/, young)
    refute_match(%r{MiB/h}, young)
    assert_match(/ up +verdict$/, text)
    assert_match(/^ *worker 0 .* leak$/, text)
    assert_includes text.gsub(/\s+/, " "), "worker 0: #{leak.sentence}"
    assert_equal read, Memscope::Workers.from_json(read.to_json)
    refute_match(/verdict/, workers(worker).to_s)
  end

  def test_the_command
    command = [*ChildProcess.ruby, File.join(ChildProcess::ROOT, "exe/memscope")]
    ran = ChildProcess.run_command(*command, "report", "--workers", "--json")

    assert_equal "workers", ran.json["kind"]
  end
end
