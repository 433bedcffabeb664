# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "memscope/cli/cli"
require "stringio"

# memscope profile --pid: profiles another process through its socket.
class CLIProfileTest < MemscopeTest
  include Listening

  # Keeps strings all the time, and one MB more before a profile is read: otherwise its thread may not have had a turn,
  # and memory left by the requests would exceed what it keeps. On one line.
  KEEPER = <<~RUBY.lines(chomp: true).join("; ").freeze
    $kept = []
    Thread.new { loop { $kept << ("x" * 10_000); sleep 0.001 } }
    keeping = Module.new do
      %i[stop snapshot].each do |name|
        define_method(name) do
          enough = $kept.size + 100
          sleep 0.001 until $kept.size >= enough
          super()
        end
      end
    end
    Memscope::MallocProfile.singleton_class.prepend(keeping)
  RUBY
  RECORD = %w[--backend=imports --rate=4096 --format=json].freeze

  def setup
    super
    skip_under_sanitizer
  end

  def profile(*arguments)
    out = StringIO.new
    err = StringIO.new
    [Memscope::CLI.run(["profile", *arguments], out: out, err: err), out.string, err.string]
  end

  def running?(process)
    process.tell("Memscope::MallocProfile.running?")
    process.gets
  end

  def test_a_process_is_profiled_and_not_any_longer
    process = listening(KEEPER)
    status, out, err = profile("--pid", process.pid.to_s, "--seconds=0.5", *RECORD)
    read = Memscope::Profile.from_json(out)

    assert_equal [0, "", process.pid, false], [status, err, read.pid, read.running?]
    assert_equal ["-e", 1], [read.by(:line).first.path, read.by(:line).first.lineno]
    assert_equal "false", running?(process)
  end

  def test_it_answers_others_meanwhile
    process = listening(KEEPER)
    client = Memscope::Client.new(process.pid)
    token = client.call(:malloc_profile_start, seconds: 60, backend: :imports, rate: 4096)

    assert_operator client.call(:rss), :positive?
    error = assert_raises(Memscope::Client::Failed) { client.call(:malloc_profile_start, seconds: 60, backend: :imports) }
    assert_match(/a malloc profile is already running: stop it first/, error.message)
    error = assert_raises(Memscope::Client::Failed) { client.call(:malloc_profile_stop, token: "another") }
    assert_match(/has ended already, or another requester stopped it/, error.message)
    assert_predicate client.call(:malloc_profile_stop, token: token), :frozen?
  end

  # One profile that the application has started, and one that was requested from outside.
  def test_a_profile_that_runs_goes_on_and_its_change_is_reported
    ["Memscope::MallocProfile.start(backend: :imports, rate: 8192)", ""].each do |start|
      process = listening("#{start}; #{KEEPER}")
      Memscope::Client.new(process.pid).call(:malloc_profile_start, seconds: 60, rate: 8192, backend: "imports") if
        start.empty?
      asked = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      status, out, err = profile("--pid", process.pid.to_s, "--seconds=0.5", *RECORD)
      took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - asked
      change = Memscope::Profile.from_json(out)

      assert_equal [0, 8192, "true"], [status, change.rate_bytes, running?(process)]
      assert_includes 0.49..(took + 0.01), change.seconds, "of which both ends are cut to a ms"
      assert_equal ["-e", 1], [change.by(:line).first.path, change.by(:line).first.lineno]
      assert_operator err, :start_with?, "memscope profile: process #{process.pid} is being profiled already. That "
      assert_read_back out
    end
  end

  # Keeps objects all the time, from its first line, and 5,000 before a profile is read.
  OBJECTS = KEEPER.sub('("x" * 10_000)', "Object.new").sub("size + 100", "size + 5000").sub("sleep 0.001 } }", "} }")
                  .sub("MallocProfile", "ObjectProfile").freeze

  def test_objects_are_profiled_and_not_any_longer
    process = listening(OBJECTS.sub("loop {", "loop { sleep 0.00001;"))
    pid = process.pid.to_s
    status, out, err = profile("--objects", "--budget=1", "--pid", pid, "--seconds=0.3", "--gc",
                               "--format=json")
    read = Memscope::Profile.from_json(out)
    entry = read.by(:line).max_by(&:live_objects)

    assert_equal [0, "", :objects, false], [status, err, read.backend, read.running?]
    assert_equal [["-e", 1], "Object"], [[entry.path, entry.lineno], read.by(:class).max_by(&:live_objects).name]
    assert_operator entry.live_objects, :>, 5000 - (4 * entry.error_objects)
    process.tell("Memscope::ObjectProfile.running?")

    assert_equal "false", process.gets
  end

  # Its change is reported; and a process that allows no actions is left alone.
  def test_a_profile_of_objects_that_runs_goes_on
    process = listening("Memscope::ObjectProfile.start(budget: 0.5)")
    status, out, err = profile("--objects", "--pid", process.pid.to_s, "--seconds=0.1", "--format=json")

    assert_equal [0, :objects], [status, Memscope::Profile.from_json(out).backend]
    assert_match(/is being profiled already\. That profile continues unchanged, .* is its change in 0\.1 s$/, err)
    process = listening("", env: { "MEMSCOPE_ACTIONS" => "0" })
    status, _out, err = profile("--objects", "--pid", process.pid.to_s)

    assert_equal 74, status
    assert_match(/allows no actions/, err)
  end

  def assert_read_back(json)
    file = File.join(@directory, "change.json")
    File.write(file, json)

    assert_match(/Live memory grew by/, profile("--from", file)[1])
  end

  def test_of_a_process_that_does_not_listen_it_says_what_helps
    process = start
    status, out, err = profile("--pid", process.pid.to_s)

    assert_equal [74, ""], [status, out]
    pid = process.pid

    assert_equal "memscope profile: process #{pid} does not listen: run memscope attach --pid #{pid} (with " \
                 "--actions for profile and purge), or let it require \"memscope\" and start it with " \
                 "MEMSCOPE_LISTEN=1\n", err
  end

  def test_what_a_page_has_not_started_no_page_stops
    process = listening(KEEPER)
    client = Memscope::Client.new(process.pid)
    token = client.call(:malloc_profile_start, seconds: 60, backend: "imports")
    error = assert_raises(Memscope::Client::Failed) { client.call(:malloc_profile_stop_shared) }

    assert_match(/was not started on a page: only its starter can stop it/, error.message)
    client.call(:malloc_profile_stop, token: token)
    client.call(:malloc_profile_start, seconds: 60, backend: "imports", shared: true)

    assert_equal [true, true], client.call(:malloc_profile_state).values_at("running", "shared")
    assert_equal [2, false], client.call(:malloc_profile_stop_shared).values_at("session", "running")
    assert_equal "false", running?(process)
    error = assert_raises(ArgumentError) { client.call(:malloc_profile_start, seconds: 60, shared: 1) }
    assert_match(/shared: given 1, allowed: true, false/, error.message)
  end

  # The token of the first profile does not stop the next one.
  def test_the_next_profile_is_not_the_one_that_was_asked_for
    process = listening(KEEPER)
    client = Memscope::Client.new(process.pid)
    before = client.call(:malloc_profile_state)
    token = client.call(:malloc_profile_start, seconds: 60, backend: "imports", shared: true)
    process.tell("Memscope::MallocProfile.stop; Memscope::MallocProfile.start(backend: :imports)")

    assert_equal "nil", process.gets
    assert_equal [0, false], before.values_at("session", "running")
    assert_equal [2, true, false], client.call(:malloc_profile_state).values_at("session", "running", "shared")
    error = assert_raises(Memscope::Client::Failed) { client.call(:malloc_profile_stop, token: token) }
    assert_match(/has ended already, or another requester stopped it/, error.message)
    assert_equal "true", running?(process)
  end

  def test_it_ends_by_itself_where_nobody_stops_it
    process = listening("Memscope::Profile::Lease.send(:remove_const, :GRACE_SECONDS); " \
                        "Memscope::Profile::Lease::GRACE_SECONDS = 0.2; #{KEEPER}")
    client = Memscope::Client.new(process.pid)
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    client.call(:malloc_profile_start, seconds: 0.2, backend: "imports")
    Timeout.timeout(PATIENCE) { sleep 0.01 while running?(process) == "true" }

    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - started, :>=, 0.4, "grace comes on top"
    assert_equal [1, false], client.call(:malloc_profile_state).values_at("session", "running")
  end

  def test_a_forked_child_does_not_go_on_with_it
    process = listening(KEEPER)
    Memscope::Client.new(process.pid).call(:malloc_profile_start, seconds: 60, backend: "imports")
    process.tell("Process.wait2(fork { exit!(Memscope::MallocProfile.running? ? 1 : 0) }).last.exitstatus")

    assert_equal %w[0 true], [process.gets, running?(process)]
  end

  def test_not_where_it_allows_no_actions
    process = listening(KEEPER, env: { "MEMSCOPE_ACTIONS" => "0" })
    status, out, err = profile("--pid", process.pid.to_s, "--seconds=0.1", *RECORD)

    assert_equal [74, "", "false"], [status, out, running?(process)]
    assert_match(/this process allows no actions: its setting `actions` is false/, err)
  end

  # On a server that nobody has prepared for profiling.
  def test_without_a_profiler_it_takes_imports_and_says_so
    process = listening(KEEPER)
    status, out, err = profile("--pid", process.pid.to_s, "--seconds=0.5", "--rate=4096")

    assert_equal [0, ""], [status, err]
    assert_match(/GOT hooks \(imports\)/, out)
    assert_match(/^ +[\d.]+ +[\d.]+ +[\d,]+ +[\d.]+ %  -e:1 in /, out)
    status, _out, err = profile("--pid", process.pid.to_s, "--seconds=0.1", "--backend=jemalloc")

    assert_equal 74, status
    assert_match(/memscope exec --profile -- COMMAND`, or use the backend imports, which needs no settings$/, err)
    assert_equal "false", running?(process)
  end

  def test_by
    process = listening("def keep = Memscope.tag('feed') { ($all ||= []) << ('y' * 100_000) }; " \
                        "Thread.new { Thread.current.name = 'keeper'; loop { keep; sleep 0.001 } }")

    %w[tag thread method caller].zip([/ feed$/, / keeper$/, / Object#keep$/, / -e:1 in .*keep$/]) do |name, shown|
      assert_match(shown, profile("--pid", process.pid.to_s, "--seconds=0.3", "--rate=4096", "--by=#{name}")[1])
    end
  end

  def test_a_folder_that_cannot_be_written_to_starts_nothing
    process = listening(KEEPER)
    status, _out, err = profile("--pid", process.pid.to_s, "--seconds=5", "--output=/proc/heap", *RECORD)

    assert_equal 74, status
    assert_match(%r{\Amemscope profile: --output /proc/heap: }, err)
    assert_equal "false", running?(process)
  end

  def test_usage
    assert_match(/no process given; allowed: --pid, /, profile.last)
    assert_match(/--from and --pid exclude each other/, profile("--pid=1", "--from=x").last)
    assert_match(/--rate: given "3", allowed/, profile("--pid=1", "--rate=3").last)
  end
end
