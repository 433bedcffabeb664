# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/puma_process"
require "tmpdir"

# Five endpoints of a Puma with 16 threads, one of which keeps six objects a request: `memscope tags --pid` says which,
# and how many.
class TagsPumaTest < MemscopeTest
  parallelize_me!

  APPLICATION = File.expand_path("../support/workloads/tags.ru", __dir__)
  ENDPOINTS = %w[/keep /list /show /cache /slow].freeze
  THREADS = 16
  # In each round, every thread makes REQUESTS requests; then garbage is collected.
  ROUNDS = 4
  REQUESTS = 25

  # A Puma that listens, with THREADS threads.
  class Server < PumaProcess
    def initialize(directory, preload)
      environment = { "RACK_ENV" => "test", "MEMSCOPE_LISTEN" => "1", "MEMSCOPE_SOCKET_DIRECTORY" => directory }
      command = self.class.command("puma", "-b", "tcp://127.0.0.1:0", "-t", "#{THREADS}:#{THREADS}", APPLICATION)
      super(command, self.class.environment(preload, environment), directory)
    end

    def session(&) = Net::HTTP.start("127.0.0.1", port, open_timeout: PATIENCE, read_timeout: PATIENCE, &)
  end

  both_allocators "the endpoint that keeps objects comes first", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    Dir.mktmpdir do |directory|
      Server.run(directory, preload) do |server|
        ROUNDS.times { |round| serve(server, round) }
        first, *others = tags(server, directory).rows

        assert_keeps(first, jemalloc: !preload.nil?)
        assert_equal ENDPOINTS.drop(1).sort, others.map(&:name).sort
        others.each { |row| assert_keeps_nothing(row) }
      end
    end
  end

  private

  # Each thread requests random endpoints, in an order of its own.
  def serve(server, round)
    Array.new(THREADS) do |thread|
      Thread.new do
        random = Random.new((100 * round) + thread)
        server.session { |http| REQUESTS.times { http.get(ENDPOINTS.sample(random: random)) } }
      end
    end.each(&:join)
    server.session { |http| http.get("/collect") }
  end

  def tags(server, directory)
    command = [*ChildProcess.ruby, File.join(ChildProcess::ROOT, "exe", "memscope"), "tags", "--pid", server.pid.to_s]
    text, json = [[], ["--json"]].map do |options|
      ChildProcess.run_command(*command, *options, env: { "MEMSCOPE_SOCKET_DIRECTORY" => directory }).out
    end

    assert_match(%r{^ +retained .*\n +[\d,]+ +[\d,]+ .* /keep$}, text)
    Memscope::Tags.from_json(json)
  end

  def assert_keeps(row, jemalloc:)
    assert_equal ["/keep", 0], [row.name, row.running]
    assert_in_delta ROUNDS * REQUESTS * THREADS / 5, row.runs, 100
    assert_in_delta 6000, row.retained_objects, 5 * row.retained_objects_error
    assert_operator row.retained_objects_error, :<, 3000
    assert_equal jemalloc, !row.malloc_allocated_bytes.nil?
  end

  def assert_keeps_nothing(row)
    assert_in_delta 0, row.retained_objects, 5 * row.retained_objects_error if row.retained_objects
  end
end
