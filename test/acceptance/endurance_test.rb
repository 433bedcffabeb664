# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/puma_server"

# A Puma cluster under load while everything of memscope is asked of it at once, again and again: no request fails, no
# worker is lost, and their memory stays. For some seconds; `rake battery:endurance MINUTES=30` is the long form.
class EnduranceTest < MemscopeTest
  parallelize_me!

  MEBIBYTE = 1_048_576
  SECONDS = Float(ENV.fetch("MEMSCOPE_ENDURANCE_SECONDS", 4))
  # What a worker may gain after the first fifth of the time: an allocator's fragments.
  GROWTH = (SECONDS > 60 ? 8 : 64) * MEBIBYTE
  PAGES = %w[/ /ledger /ledger.json?deep=1 /doctor /arenas /ruby_heap.json /mappings /workers.json /profile
             /profile/flamegraph /metrics /debug/pprof/heap].freeze
  WORK = %w[/pid /messages /churn /text].freeze
  PROFILING = { "MALLOC_CONF" => "prof:true,prof_active:false,prof_accum:true" }.freeze
  SERVERS = { glibc: [nil, {}], jemalloc: ["libjemalloc.so.2", PROFILING] }.freeze
  GIVEN_OUT = %i[in_use mmapped].freeze
  LEVERS = { glibc: "trim", jemalloc: "purge" }.freeze
  # Each in a process of its own, as jemalloc's profiler is on from the start or not at all.
  CASES = { imports_under_glibc: %i[imports glibc], imports_under_jemalloc: %i[imports jemalloc],
            jemalloc: %i[jemalloc jemalloc] }.freeze

  CASES.slice(*(SECONDS > 60 ? CASES.keys : [:imports_under_glibc])).each do |name, (backend, allocator)|
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
    load_for(SECONDS / 5, workers, lever)
    first = workers.to_h { |pid| [pid, settled(pid, lever)] }
    load_for(SECONDS * 4 / 5, workers, lever)

    assert_empty Array.new(@failed.size) { @failed.pop }.tally
    assert_equal workers, worker_pids, "workers were lost: #{server.log}"
    workers.each { |pid| assert_flat(pid, first.fetch(pid), settled(pid, lever)) }
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
    workers.each { |pid| client(pid).call(:malloc_profile_start, seconds: SECONDS + 60, backend: backend.name) }
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

  # Again and again through a list until the end; a failure is noted, and goes on.
  def repeat(list, pause)
    Thread.new do
      list.cycle do |item|
        break if now > @ending

        yield item
        sleep pause
      rescue StandardError => e
        @failed << "#{Array(item).join(' ')}: #{e.message.lines.first} (#{e.class})"
      end
    end
  end

  def request(path) = @server.request(Net::HTTP::Get.new(path))

  def answered(path, response)
    @failed << "#{path}: #{response.code} #{response.body[0, 200]}" unless response.is_a?(Net::HTTPSuccess)
  end

  # What remains of a worker without load: its deep ledger, and its USS in bytes.
  def settled(pid, lever)
    client(pid).call(:purge, levers: ["gc", lever])
    { ledger: client(pid).call(:ledger, deep: true), uss: client(pid).call(:process_memory).uss_bytes }
  end

  # USS is printed only: a preloaded worker's grows with each page that it no longer shares, and its RSS does not.
  def assert_flat(pid, first, last)
    rss, used = [:rss_bytes.to_proc, method(:used_bytes)].map do |measure|
      [last, first].map { |settled| measure.call(settled.fetch(:ledger)) }.reduce(:-)
    end
    grown = "worker #{pid}: USS #{last[:uss] - first[:uss]}, in use #{used}\n#{last[:ledger] - first[:ledger]}"
    puts grown if SECONDS > 60

    assert_operator used, :<=, GROWTH / 4, grown
    assert_operator rss, :<=, GROWTH, grown
  end

  # What malloc has given out.
  def used_bytes(ledger) = ledger[:malloc].each_leaf.select { |row| GIVEN_OUT.include?(row.id) }.sum(&:bytes)

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
