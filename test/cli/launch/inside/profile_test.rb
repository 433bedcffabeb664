# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/profiled_programs"
require "memscope/cli/cli"
require "stringio"
require "timeout"
require "zlib"

# Profiles of objects.
class ProgramProfileTest < MemscopeTest
  parallelize_me!

  include ProfiledPrograms
end

class ProgramObjectProfileTest < ProgramProfileTest
  # In each iteration, puts a String into a ring; in every tenth, keeps an Order if it is to leak. Runs for a second or
  # more.
  LEAK = <<~RUBY
    KEPT = []
    RING = []
    class Order; end
    def keep = KEPT << Order.new
    def turn(at) = RING[at % 5_000] = +"ring"
    leaks = ARGV.include?("leak")
    at = 0
    now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
    over = now.call + 1
    while now.call < over || at < 400_000
      at += 1
      keep if leaks && (at % 10).zero?
      turn(at)
    end
  RUBY
  OBJECTS = %w[--objects].freeze

  def leaks(*arguments)
    launch("leaks", *OBJECTS, "--warmup=0.1", "--threshold=6000", "--", *keeper(LEAK), *arguments)
  end

  def test_a_line_that_keeps_objects_fails_the_command_and_its_holder_is_named
    ran = leaks("leak")

    assert_exit 1, ran, err: /one line grew past 6,000 objects: .*keeper\.rb:4 in Object#keep by [\d,]+ objects, /
    assert_match(/ objects, held by KEPT -> Array -> Order$/, ran.err)
    assert_match(/in Object#keep\n +held by KEPT/, ran.err)
  end

  def test_objects_that_come_and_go_do_not
    assert_exit 0, leaks, err: /no line grew past 6,000 objects$/
  end

  def test_a_program_that_ends_in_its_warm_up_is_not_judged
    ran = launch("leaks", *OBJECTS, "--warmup=60", "--", *ruby(""))

    assert_exit 74, ran, err: /too early: the program ended within its warm-up/
  end

  def test_a_program_is_profiled_until_it_ends
    program = keeper("$kept = Array.new(20_000) { Object.new }")
    ran = launch("profile", *OBJECTS, "--budget=1", "--format=json", "--", *program)
    entry = profile(ran).by(:line).max_by(&:live_objects)

    assert_equal [path("keeper.rb"), 1], [entry.path, entry.lineno]
    assert_in_delta 20_000, entry.live_objects, 4 * entry.error_objects
    ran = launch("profile", *OBJECTS, "--by=class", "--", *program)

    assert_exit 0, ran, err: /object profile.*^ +[\d.]+ +[\d.]+ +[\d,]+ +[\d,]+ +[\d.]+ %  Object$/m
  end
end

class ProgramProfileAtTheEndTest < ProgramProfileTest
  def test_any_malloc_is_profiled_at_its_imports_and_that_is_said
    ran = launch("profile", "--rate=8192", "--format=json", "--", *keeper)

    assert_exit 0, ran, out: "done\n", err: /\A\{.*\}\n\z/
    assert_equal :imports, profile(ran).backend
    assert_keeper profile(ran), 2
  end

  def test_text_for_people
    ran = launch("profile", "--backend=imports", "--rate=8192", "--", *keeper)

    assert_exit 0, ran, out: "done\n", err: /keeper\.rb:2/
    assert_match(/\Amemscope .* malloc profile .* pid \d+$/, ran.err)
  end

  # The screen in docs/tour.md shows this program: each line that it names holds as much as it says.
  def test_the_screen_of_the_tour
    program = File.join(ChildProcess::ROOT, "test/support/workloads/import.rb")
    said = File.read(File.join(ChildProcess::ROOT, "docs/tour.md"))
               .scan(/^ +([\d.]+) +([\d.]+) .*import\.rb:(\d+)\s+in (\S+)\n +by (\w+)/)
    ran = launch("profile", "--backend=imports", "--format=json", "--", *RUBY,
                 *ChildProcess::LOAD_PATH.map { |directory| "-I#{directory}" }, program)
    found = profile(ran).by(:line).first(2)

    assert_equal(said.map { |screen| [program, screen[2].to_i, screen[3]] },
                 found.map { |entry| [entry.path, entry.lineno, entry.name] })
    said.zip(found) do |(mebibytes, error), entry|
      assert_in_delta mebibytes.to_f * 1_048_576, entry.live_bytes, 3 * ((error.to_f * 1_048_576) + entry.error_bytes)
    end
    assert_equal "deflateInit2_", said.first.last
  end

  def test_jemalloc_on_request_and_where_its_profiler_is_enabled
    version = ChildProcess.run("print Memscope.allocator.short_version", preload: "libjemalloc.so.2",
                                                                         requires: ["memscope"]).out
    skip "jemalloc #{version}" if version.empty? || Memscope::MallocProfile.crash(version)
    profile = %w[profile --rate=8192 --format=json]

    [[*profile, "--backend=jemalloc", "--", *keeper],
     ["exec", "--profile", "--", *memscope(*profile, "--", *keeper)]].each do |command|
      ran = launch(*command)

      assert_exit 0, ran, out: "done\n"
      assert_equal :jemalloc, profile(ran).backend
      assert_keeper profile(ran), 2
    end
  end

  def test_a_program_whose_jemalloc_turns_out_to_be_none_is_not_started
    output = make("heap", "")
    files = %w[memscope/cli/launch/handoff memscope/cli/launch/inside memscope/cli/launch/inside/profile]
    ran = ChildProcess.run(<<~RUBY, requires: files)
      order = { title: "profile", backend: :jemalloc, rate: 4096, format: :text, output: #{output.dump}, status: 74 }
      Memscope::Launch::ProgramProfile.new(order).start
      puts "started"
    RUBY

    assert_exit 74, ran, out: "", err: /\Amemscope profile: no jemalloc serves malloc.*; the program is not started/
    refute_path_exists output
  end

  def test_exit_statuses_are_the_programs_own
    assert_exit 3, launch("profile", "--backend=imports", "--", *ruby("exit 3"))
  end

  def test_the_first_seconds_only
    ran = launch("profile", "--backend=imports", "--seconds=0.1", "--format=json", "--",
                 *keeper("#{WHILE_PROFILED}\n#{KEEPER}"))

    assert_exit 0, ran, out: "done\n"
    assert_operator profile(ran).live_bytes, :<, 5_000_000
  end

  def test_to_a_file_for_its_owner
    ran = launch("profile", "--backend=imports", "--format=html", "--output", path("heap.html"), "--", *keeper)

    assert_exit 0, ran, out: "done\n", err: ""
    assert_equal 0o600, File.stat(path("heap.html")).mode & 0o777
    assert_includes File.read(path("heap.html")), "<html"
  end

  # The output is gzip, not text.
  def test_for_go_to_a_file
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    ran = launch("profile", "--backend=imports", "--format=pprof", "--output", path("heap.pb.gz"), "--", *keeper,
                 env: { "RUBYOPT" => "-rbundler/setup", "BUNDLE_GEMFILE" => File.join(ChildProcess::ROOT, "Gemfile") },
                 gems: true)

    assert_exit 0, ran, out: "done\n"
    assert_includes Zlib.gunzip(File.binread(path("heap.pb.gz"))), "inuse_space"
  end

  def test_a_file_that_cannot_be_made_starts_nothing
    make("there", "mine")
    ran = launch("profile", "--backend=imports", "--output", path("there"), "--", *keeper)

    assert_exit 74, ran, out: "", err: /--output .*there: File exists; allowed: a file that does not exist yet/
    assert_equal "mine", File.read(path("there"))
    assert_exit 74, launch("profile", "--backend=imports", "--output", "/proc/heap", "--", *keeper), out: ""
  end

  def test_a_profile_is_converted
    ran = launch("profile", "--backend=imports", "--format=json", "--output", path("heap.json"), "--", *keeper)

    assert_exit 0, ran
    assert_exit 0, launch("profile", "--from", path("heap.json"), "--format=speedscope"), err: ""
    assert_exit 74, launch("profile", "--from", make("half.json", File.read(path("heap.json"))[0, 500])),
                err: /\Amemscope profile: --from .*invalid or truncated JSON/
  end
end

# A process that a program forks reports its own profile when it ends.
class ProgramProfileForksTest < ProgramProfileTest
  FORKS = <<~RUBY
    $kept = []
    def keep(count) = count.times { $kept << ("x" * 10_000) }
    pids = [fork { keep(525) }, fork { keep(525); exit! }, fork { exec("true") }]
    pids.each { |pid| Process.wait(pid) }
    system(RbConfig.ruby, "--disable-gems", "-e", "exit")
    puts pids.first
  RUBY

  def files = Dir[path("heap*")].map { |file| File.basename(file) }.sort

  # nil while it is being written.
  def whole(file)
    Memscope::Profile.from_json(File.read(file))
  rescue ArgumentError
    nil
  end

  # A daemon's parent is not this process, and may leave it a zombie.
  def gone?(pid)
    File.read("/proc/#{pid}/stat")[/.*\) (\S)/m, 1] == "Z"
  rescue Errno::ENOENT, Errno::ESRCH
    true
  end

  def test_to_a_file_with_its_pid
    ran = launch("profile", "--backend=imports", "--rate=8192", "--format=json", "--output", path("heap.json"), "--",
                 *keeper(FORKS))
    child = ran.out.to_i

    assert_exit 0, ran, err: /\Amemscope profile: process #{child}, forked by \d+: .*heap\.#{child}\.json\n\z/
    assert_equal ["heap.#{child}.json", "heap.json"], files
    assert_equal 0o600, File.stat(path("heap.#{child}.json")).mode & 0o777
    read = %W[heap.json heap.#{child}.json].map { |name| Memscope::Profile.from_json(File.read(path(name))) }

    assert_operator read[0].live_bytes, :<, 5_000_000
    assert_equal child, read[1].pid
    assert_keeper read[1], 2
  end

  def test_to_standard_error
    ran = launch("profile", "--backend=imports", "--", *keeper(FORKS))
    pids = ran.err.scan(/malloc profile .* pid (\d+)$/).flatten

    assert_exit 0, ran
    assert_equal 2, pids.size
    assert_equal ran.out.chomp, pids.first
  end

  def test_one_whose_file_is_there_says_so
    script = FORKS.sub("keep(525) }", 'File.write(format(ENV.fetch("PLACE"), $$), "mine") }')
    ran = launch("profile", "--backend=imports", "--format=json", "--output", path("heap.json"), "--", *keeper(script),
                 env: { "PLACE" => path("heap.%d.json") })

    assert_match(/^memscope profile: no report: File exists/, ran.err)
    assert_equal "mine", File.read(path("heap.#{ran.out.to_i}.json"))
  end

  # On a busy machine, the process may fork only after the time is over: then a longer time is tried.
  def test_for_so_many_seconds
    command = keeper(<<~RUBY)
      fork do
        #{WHILE_PROFILED}
        $kept = "x" * 9_000_000
      end
      Process.wait
      #{WHILE_PROFILED}
      fork {}
      Process.wait
    RUBY
    reported = [0.5, 5, 30].lazy.map { |seconds| reported_after(seconds, command) }.find { |all| all.size == 2 }

    refute_nil reported, files
    reported.each { |file| assert_operator Memscope::Profile.from_json(File.read(path(file))).live_bytes, :<, 9_000_000 }
  end

  def reported_after(seconds, command)
    File.unlink(*files.map { |file| path(file) })

    assert_exit 0, launch("profile", "--backend=imports", "--seconds=#{seconds}", "--format=json", "--output",
                          path("heap"), "--", *command)
    files
  end

  def test_a_daemon_reports_as_the_program
    ran = launch("profile", "--backend=imports", "--rate=8192", "--format=json", "--output", path("heap.json"), "--",
                 *keeper("Process.daemon\n#{KEEPER}"))

    assert_exit 0, ran
    Timeout.timeout(60) { sleep 0.05 until (profile = whole(path("heap.json"))) && gone?(profile.pid) }

    assert_equal ["heap.json"], files
    assert_keeper whole(path("heap.json")), 3
  end
end

class ProgramProfileUsageTest < MemscopeTest
  PROGRAM = [RbConfig.ruby, "-e", "exit"].freeze

  # Runs in this process, which would become the program if that were started.
  def assert_refused(message, *arguments)
    err = StringIO.new

    assert_equal 64, Memscope::CLI.run([*arguments, "--", *PROGRAM], out: StringIO.new, err: err)
    assert_match message, err.string
  end

  def test_what_is_wrong_is_named
    { "--rate=1000" => /--rate: given "1000", allowed: a power of two/,
      "--rate=x" => /--rate: given "x", allowed: a power of two/, "--rate=0" => /--rate: given "0"/,
      "--rate=-512" => /--rate: given "-512"/,
      "--backend=hope" => /--backend: given "hope", allowed: auto, jemalloc, imports$/,
      "--format=png" => /--format: given "png", allowed: text, json/,
      "--seconds=0" => /--seconds: given "0", allowed/,
      "--format=pprof" => /--format=pprof is binary: give --output FILE/ }.each do |option, message|
      assert_refused message, "profile", option
    end
  end

  def test_of_leaks_too
    assert_refused(/--threshold: given "0", allowed: a number above 0/, "leaks", "--threshold=0")
    assert_equal 64, Memscope::CLI.run(["leaks"], out: StringIO.new, err: StringIO.new)
  end
end
