# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/puma_server"

# A Puma cluster under load with a profile of malloc and one of objects in each worker, while it is asked for everything
# that memscope offers, again and again: no request fails, no worker is lost, both profiles go on, and the workers'
# memory does not grow. Runs for some seconds; `rake battery:endurance MINUTES=30` is the long form.
class EnduranceTest < MemscopeTest
  parallelize_me!

  MEBIBYTE = 1_048_576
  SECONDS = Float(ENV.fetch("MEMSCOPE_ENDURANCE_SECONDS", 4))
  LONG = SECONDS > 60
  # The workers' memory is measured after each of these shares of the time.
  PARTS = LONG ? [0.2] * 5 : [0.2, 0.8]
  # Allowed growth per worker after the first part: fragmentation.
  GROWTH = (LONG ? 8 : 64) * MEBIBYTE
  PAGES = %w[/ /?findings=1 /ledger.json?deep=1 /history /objects /allocator /ruby_heap.json /workers.json /profile
             /profile/flamegraph /profile?kind=objects&by=class /profile/flamegraph?kind=objects /metrics
             /debug/pprof/heap /debug/pprof/objects].freeze
  WORK = %w[/pid /messages /churn /text /fork_and_profile].freeze
  PROFILING = { "MALLOC_CONF" => Memscope::MallocProfile::CONF }.freeze
  SERVERS = { glibc: [nil, {}], jemalloc: ["libjemalloc.so.2", PROFILING] }.freeze
  GIVEN_OUT = %i[in_use mmapped].freeze
  LEVERS = { glibc: "trim", jemalloc: "purge" }.freeze
  # Each in a process of its own, because jemalloc's profiler is on from the start or not at all.
  CASES = { imports_under_glibc: %i[imports glibc], imports_under_jemalloc: %i[imports jemalloc],
            jemalloc: %i[jemalloc jemalloc] }.freeze

  CASES.slice(*(LONG ? CASES.keys : [:imports_under_glibc])).each do |name, (backend, allocator)|
    define_method("test_a_cluster_that_is_asked_everything_#{name}") do
      skip_under_sanitizer
      skip_without_jemallocs_profiler if backend == :jemalloc
      preload, environment = SERVERS.fetch(allocator)
      PumaServer.run("workers 2; preload_app!", threads: 3, preload: preload, env: environment) do |server|
        endure(server, backend, LEVERS.fetch(allocator))
      end
    end
  end

  private

  def endure(server, backend, lever)
    @server = server
    @failed = Queue.new
    workers = worker_pids
    profile(workers, backend)
    parts = PARTS.map do |share|
      load_for(SECONDS * share, workers, lever)
      workers.to_h { |pid| [pid, settled(pid, lever)] }.tap { |part| show(part) if LONG }
    end

    assert_empty Array.new(@failed.size) { @failed.pop }.tally
    assert_equal workers, worker_pids, "workers were lost: #{server.log}"
    workers.each do |pid|
      assert_profiled(pid)
      assert_flat(pid, parts.map { |part| part.fetch(pid) })
    end
  end

  def show(part)
    part.each do |pid, settled|
      ledger = settled.fetch(:ledger)
      sizes = { rss: ledger.rss_bytes, uss: settled.fetch(:uss), in_use: used_bytes(ledger),
                **ledger.rows.to_h { |row| [row.id, row.bytes] } }
      puts "worker #{pid}: #{sizes.map { |name, bytes| "#{name} #{bytes.fdiv(MEBIBYTE).round(1)}" }.join(', ')} MiB"
    end
  end

  def load_for(seconds, workers, lever)
    @ending = now + seconds
    [work, work, ask_pages, ask_relayed(workers), purge(lever)].each(&:join)
  end

  def worker_pids
    all = @server.workers_when("two workers") { |found| found.count { |one| one.role == :worker && one.at } == 2 }
    all.select { |worker| worker.role == :worker }.map(&:pid).sort
  end

  def profile(workers, backend)
    workers.each do |pid|
      client(pid).call(:malloc_profile_start, seconds: 2 * (SECONDS + 60), backend: backend.name)
      client(pid).call(:object_profile_start, seconds: 2 * (SECONDS + 60))
    end
  end

  def assert_profiled(pid)
    malloc, objects = %i[malloc_profile_snapshot object_profile_snapshot].map { |call| client(pid).call(call) }
    puts "worker #{pid}: #{objects.overhead.to_h}" if LONG

    assert_predicate malloc, :running?
    assert_predicate objects, :running?
    assert_operator malloc.samples, :>, 0
    assert_operator objects.windows, :>, 1
  end

  def client(pid) = Memscope::Client.at(File.join(@server.directory, "#{pid}.sock"))

  def work = repeat(WORK, 0) { |path| answered(path, request(path)) }

  def ask_pages = repeat(PAGES, 0.02) { |path| answered(path, request("/memscope#{path}")) }

  def ask_relayed(workers)
    calls = %i[snapshot ledger doctor ruby_heap arenas mappings process_memory].product(workers)
    repeat(calls, 0.02) { |call, pid| client(pid).call(call) }
  end

  def purge(lever)
    repeat([lever], 1) { answered("purge", @server.post("/memscope/purge", { lever: lever })) }
  end

  # Cycles through a list until @ending. Notes a failure, and goes on.
  def repeat(list, pause)
    Thread.new do
      list.cycle do |item|
        break if now > @ending

        yield item
        sleep pause
      rescue StandardError => e
        note("#{Array(item).join(' ')}: #{e.message.lines.first} (#{e.class})")
      end
    end
  end

  def request(path) = @server.request(Net::HTTP::Get.new(path))

  def answered(path, response)
    note("#{path}: #{response.code} #{response.body[0, 200]}") unless response.is_a?(Net::HTTPSuccess)
  end

  def note(failure)
    puts failure if LONG
    @failed << failure
  end

  # What remains of a worker without load: its deep ledger, and its USS in bytes.
  def settled(pid, lever)
    client(pid).call(:purge, levers: ["gc", lever])
    { ledger: client(pid).call(:ledger, deep: true), uss: client(pid).call(:process_memory).uss_bytes }
  end

  # USS is printed only: a preloaded worker's grows with each page that it no longer shares, and its RSS does not.
  #
  # glibc's malloc_trim leaves the ends of its threads' arenas alone, and free returns them only above
  # M_TRIM_THRESHOLD, which grows to up to 64 MiB with the largest block that was freed (2.36: malloc/malloc.c, mtrim;
  # malloc/arena.c, heap_trim): RSS may grow more than what is in use and what is not malloc's.
  def assert_flat(pid, parts)
    most = { used_bytes: GROWTH / 4, held_bytes: GROWTH, rss_bytes: 3 * GROWTH }
    grown = most.to_h { |measure, _most| [measure, growth(parts, measure)] }
    shown = "worker #{pid}: #{grown}\n#{parts.last[:ledger] - parts.first[:ledger]}"
    puts shown if LONG

    most.each { |measure, limit| assert_operator grown[measure], :<=, limit, shown }
  end

  # From the first part to the lesser of the last two: what the last request leaves behind, the next one frees.
  def growth(parts, measure)
    bytes = parts.map { |settled| send(measure, settled.fetch(:ledger)) }
    bytes.drop(1).last(2).min - bytes.first
  end

  def rss_bytes(ledger) = ledger.rss_bytes

  # RSS without what malloc keeps free.
  def held_bytes(ledger) = ledger.rss_bytes - ledger[:malloc].bytes + used_bytes(ledger)

  # What malloc has given out.
  def used_bytes(ledger) = ledger[:malloc].leaves.select { |row| GIVEN_OUT.include?(row.id) }.sum(&:bytes)

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
