# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/puma_server"
require "zlib"

# The malloc profiles of a real cluster's workers: whichever worker serves a request, the answer is about the worker
# that was asked for.
class WorkersProfileTest < MemscopeTest
  parallelize_me!

  RATE = 4096
  PROFILE = "/memscope/profile"

  def with_workers(configuration = "workers 2; preload_app!", **options)
    skip_under_sanitizer
    PumaServer.run(configuration, **options) do |server|
      @server = server
      workers = server.workers_when("two workers") { |all| all.count { |one| one.role == :worker && one.at } == 2 }
      yield workers.drop(1).map(&:pid)
    end
  end

  def form(**fields) = { do: "start", backend: "imports", rate: RATE, **fields }

  def post(path = PROFILE, **fields) = @server.post(path, form(**fields))

  def get(path) = @server.get("/memscope#{path}")

  def outcomes(answer) = JSON.parse(answer.body).fetch("workers").map { |one| one.values_at("index", "pid", "done") }

  # Sends requests until each worker has kept something.
  def keep_in(pids)
    answered = []
    @server.until_found("both workers") do
      answered |= Array.new(4) { Thread.new { Integer(@server.get("/keep")) } }.map(&:value)
      (pids - answered).empty?
    end
  end

  def profile(index) = Memscope::Profile.from_json(get("/profile.json?worker=#{index}"))

  # @return [Array<Hash{String => String}>] the labels of each sample, and all comments
  def pprof(path, name: "heap")
    require_relative "../support/profile_proto"
    body = @server.get("/memscope/debug/pprof/#{name}#{path}")
    message = ProfileProto::Profile.decode(Zlib.gunzip(body))
    text = ->(index) { message.string_table[index] }
    labels = message.sample.map { |one| one.label.to_h { |label| [text[label.key], text[label.str]] } }
    [labels, message.comment.map(&text)]
  end

  def test_profiles_of_malloc_and_of_objects
    with_workers do |pids|
      assert_none_yet pids
      assert_one_is_started pids
      assert_equal [true, true], outcomes(post(do: "stop")).map(&:last)
      assert_equal([0, 1].zip(pids, [true, true]), outcomes(post))
      keep_in(pids)

      assert_each_is_read pids
      assert_one_profile_for_go pids
      assert_equal "worker 0 (pid #{pids[0]}): stopped\nworker 1 (pid #{pids[1]}): stopped\n",
                   post("#{PROFILE}.txt", do: "stop").body
      pids.each_index { |index| refute_predicate profile(index), :running? }
      assert_refused pids
      assert_objects_of_all pids
      assert_stopped_worker_fails pids
    end
  end

  def objects(index) = Memscope::Profile.from_json(get("/profile.json?worker=#{index}&kind=objects"))

  # A profile that a page has started can still be read when it has ended.
  def assert_objects_of_all(pids)
    assert_equal([0, 1].zip(pids, [true, true]), outcomes(post(kind: "objects", budget: 1)))
    keep_in(pids)
    read = [0, 1].map { |index| objects(index) }

    assert_equal(pids, read.map(&:pid))
    assert(read.all? { |profile| profile.objects? && profile.running? })
    labels, comments = pprof("", name: "objects")

    assert_equal(pids.map(&:to_s).sort, labels.map { |label| label["pid"] }.uniq.sort)
    assert_empty comments.grep(/missing/)
    assert_equal [true, true], outcomes(post(do: "stop", kind: "objects")).map(&:last)
    refute([0, 1].any? { |index| objects(index).running? })
  end

  # More often than the right one of two workers would answer by chance.
  def assert_each_is_read(pids)
    [0, 1].cycle(2) do |index|
      read = profile(index)

      assert_equal [pids[index], true], [read.pid, read.running?]
      assert(read.by(:line).first(3).any? { |entry| entry.path&.end_with?("workloads/workers.ru") })
      assert_includes get("/profile?worker=#{index}"), "in worker #{index}, process #{pids[index]} and"
      assert_includes get("/profile/flamegraph?worker=#{index}"), "process #{pids[index]}</title>"
    end
    2.times { assert_includes get("/profile"), "in worker 0, process #{pids[0]} and" }
  end

  def assert_refused(pids)
    assert_equal "409", post(do: "stop").code
    assert_match(/Worker 0 \(pid #{pids[0]}\): .*no malloc profile is running.*\. Worker 1 .*running.*\./,
                 JSON.parse(post(do: "stop").body)["error"])
    assert_equal 'worker: given "7", allowed: 0, 1, all.', JSON.parse(post(worker: 7).body)["error"]
    assert_equal 'worker: given "all", allowed: 0, 1.',
                 JSON.parse(get("/profile.json?worker=all"))["error"]
    assert_match(/\ANot found|\Aworker: given "9"/, get("/debug/pprof/heap?worker=9"))
  end

  def assert_none_yet(pids)
    pids.each_index do |index|
      assert_equal "No malloc profile was started in worker #{index} (pid #{pids[index]}).",
                   JSON.parse(get("/profile.json?worker=#{index}"))["error"]
    end
    assert_match(/\ANo malloc profile runs in worker 0 \(pid #{pids[0]}\), worker 1 /, get("/debug/pprof/heap"))
  end

  # The page says what happened in each worker.
  def assert_one_is_started(pids)
    assert_equal [[1, pids[1], true]], outcomes(post(worker: 1))
    page = post("#{PROFILE}.html").body

    assert_includes page, "Worker 0 (pid #{pids[0]}): started"
    assert_match(/Worker 1 \(pid #{pids[1]}\): .*a malloc profile is already running/, page)
    assert_equal %w[0 all], page[%r{<select id="worker".*?</select>}m].scan(/value="(\w+)"/).flatten
  end

  def assert_one_profile_for_go(pids)
    labels, comments = pprof("")

    assert_equal %w[0 1].zip(pids.map(&:to_s)), labels.map { |one| one.values_at("worker", "pid") }.uniq.sort
    assert_equal 2, comments.size
    [0, 1].cycle(2) { |index| assert_equal [pids[index].to_s], pids_in(pprof("?worker=#{index}")) }
  end

  def assert_stopped_worker_fails(pids)
    Process.kill(:STOP, pids[0])
    @server.until_found("a worker that has stopped") { File.read("/proc/#{pids[0]}/stat")[/\) (\w)/, 1] == "T" }

    assert_match(/Worker 0 .* failed: process #{pids[0]} does not answer within/, get("/profile?worker=0"))
  end

  def pids_in((labels, _comments)) = labels.map { |one| one["pid"] }.uniq.sort

  # `memscope profile -- puma` writes one profile for the master, and one for each worker.
  def test_what_puma_is_started_through_reports_each_process
    Dir.mktmpdir do |directory|
      output = File.join(directory, "heap.json")
      through = ["profile", "--backend=imports", "--rate=8192", "--format=json", "--output", output]
      pids = with_workers(through: through) { |workers| keep_in(workers) && [@server.pid, *workers] }
      master, *workers = [output, *pids.drop(1).map { |pid| output.sub(".json", ".#{pid}.json") }].map do |path|
        Memscope::Profile.from_json(File.read(path))
      end

      assert_equal pids, [master, *workers].map(&:pid)
      assert(workers.all? { |worker| kept(worker) >= 4_000_000 })
      assert_equal 0, kept(master)
    end
  end

  def kept(profile)
    source = File.readlines("#{__dir__}/../support/workloads/workers.ru")
    line = source.index { |text| text.include?("KEPT.concat") } + 1
    profile.by(:line).select { |entry| entry.path&.end_with?("workloads/workers.ru") && entry.lineno == line }
           .sum(&:live_bytes)
  end
end
