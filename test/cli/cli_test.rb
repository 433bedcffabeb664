# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/cli/cli"
require "stringio"
require "tmpdir"

class CLITest < MemscopeTest
  EXECUTABLE = File.join(ChildProcess::ROOT, "exe", "memscope")

  Ran = Struct.new(:status, :out, :err)

  # Runs the command in this process.
  def memscope(*arguments)
    out = StringIO.new
    err = StringIO.new
    Ran.new(Memscope::CLI.run(arguments, out: out, err: err), out.string, err.string)
  end

  # The command line that runs it in a process of its own.
  def command(name) = [*ChildProcess.ruby, EXECUTABLE, name]

  def assert_refused(message, *arguments)
    ran = memscope(*arguments)

    assert_equal [64, ""], [ran.status, ran.out]
    assert_equal "#{message}\n", ran.err
  end

  def test_report
    ran = memscope("report")

    assert_equal 0, ran.status
    assert_includes ran.out, "= RSS of this reading, to the byte"
    assert_match(/\Amemscope report: this is the memscope process itself; .*\n\z/, ran.err)
  end

  def test_report_as_json
    ran = memscope("report", "--json")
    ledger = Memscope::Ledger.from_h(JSON.parse(ran.out))

    assert_equal 1, ran.out.lines.size
    assert_equal [Process.pid, 0], [ledger.pid, ran.status]
  end

  def test_report_of_all_that_can_be_asked_for
    skip_under_sanitizer
    ran = memscope("report", "--json", "--deep", "--shared", "--objects")
    ledger = Memscope::Ledger.from_h(JSON.parse(ran.out))

    assert_operator ledger.held_by_objects_bytes, :positive?
    assert_operator ledger.dig(:malloc, :main_heap, :in_use).bytes, :positive?
    assert_operator ledger[:files].shared_bytes, :positive?
  end

  def test_report_tells_garbage_apart
    skip_under_sanitizer
    Thread.new { Array.new(2_000) { |number| number.to_s * 1_000 } && nil }.join
    ledger = Memscope::Ledger.from_h(JSON.parse(memscope("report", "--json", "--garbage").out))
    text = memscope("report", "--garbage").out

    assert_operator ledger.garbage_bytes, :positive?
    assert_match(/in use .*\n +[\d.]+ .*reachable or native\n +[\d.]+ .*garbage\n/, text)
    assert_match(/^  [\d.]+ [KM]iB of live slots and of malloc memory in use, resident or not, is\s+garbage/, text)
  end

  def test_report_of_the_mappings
    ran = memscope("report", "--mappings")

    assert_equal 0, ran.status
    assert_match(%r{^ +[\d,]+ +[\d,]+ +rw-p  \h+  stacks/main  \[stack\]$}, ran.out)

    ran = memscope("report", "--mappings", "--json")

    assert_equal Process.pid, Memscope::Mappings.from_h(JSON.parse(ran.out)).pid
  end

  def test_report_of_malloc
    skip_under_sanitizer
    ran = memscope("report", "--arenas", "--size-classes", "--arenas", "--json")
    kinds = ran.out.lines.map { |line| JSON.parse(line)["kind"] }

    assert_equal %w[arenas size_classes], kinds
    assert_equal 74, ran.status, "glibc has no size classes"
    assert_equal 0, memscope("report", "--arenas").status
  end

  def test_the_mappings_have_no_depth
    ran = memscope("report", "--mappings", "--deep")

    assert_equal [64, ""], [ran.status, ran.out]
    assert_includes ran.err, "--mappings and --deep exclude each other\n"
  end

  def test_markdown
    ran = memscope("report", "--markdown")

    assert_equal 0, ran.status
    assert_match(/\A````text\nmemscope .*= RSS of this reading.*\n````\n\z/m, ran.out)
    assert_match(/\A````text\nmemscope .*\n````\n\z/m, memscope("report", "--markdown", "--arenas").out)
    assert_includes memscope("report", "--markdown", "--json").err, "--markdown and --json exclude each other"
    assert_includes memscope("doctor", "--markdown", "--settings").err, "--settings and --markdown exclude each other"
  end

  def test_report_to_a_file
    Dir.mktmpdir do |directory|
      path = File.join(directory, "ledger.json")
      ran = memscope("report", "--json", "--output", path)

      assert_equal [0, ""], [ran.status, ran.out]
      assert_equal 0o600, File.stat(path).mode & 0o777
      assert_equal "ledger", JSON.parse(File.read(path))["kind"]
    end
  end

  def test_a_file_that_exists_stays_as_it_is
    Dir.mktmpdir do |directory|
      path = File.join(directory, "notes.txt")
      File.write(path, "mine")
      ran = memscope("report", "--output=#{path}")

      assert_equal [74, ""], [ran.status, ran.out]
      assert_match(/^memscope report: --output #{path}: File exists; allowed: a file that does not exist yet, in a/,
                   ran.err)
      assert_equal "mine", File.read(path)
    end
  end

  def test_a_link_is_not_followed
    Dir.mktmpdir do |directory|
      File.symlink(File.join(directory, "target"), File.join(directory, "link"))

      assert_equal 74, memscope("report", "--output", File.join(directory, "link")).status
      refute_path_exists File.join(directory, "target")
    end
  end

  def test_a_file_that_cannot_be_made
    ran = memscope("report", "--output", "/nowhere/ledger.json")

    assert_equal 74, ran.status
    assert_includes ran.err, "--output /nowhere/ledger.json: No such file or directory; allowed: "
  end

  def test_a_file_that_cannot_be_finished_is_removed
    Dir.mktmpdir do |directory|
      path = File.join(directory, "ledger.json")
      ran = ChildProcess.run(<<~RUBY, requires: ["memscope/cli/cli"])
        trap("XFSZ", "IGNORE")
        Process.setrlimit(:FSIZE, 1000)
        exit Memscope::CLI.run(["report", "--json", "--output", #{path.dump}])
      RUBY

      assert_equal 74, ran.status.exitstatus, ran.err
      assert_includes ran.err, "File too large"
      refute_path_exists path
    end
  end

  def test_output_that_cannot_be_written
    ran = ChildProcess.run_command("sh", "-c", 'exec "$@" > /dev/full', "sh", *command("report"))

    assert_equal 74, ran.status.exitstatus
    assert_includes ran.err, "memscope report: standard output: No space left on device"
  end

  def test_purge
    ran = memscope("purge", "gc")

    assert_equal 0, ran.status
    assert_match(/^ +– +[-\d.]+ +[-\d.]+ +[\d.]+  gc, which holds the GVL$/, ran.out)
    assert_match(/\Amemscope purge: this is the memscope process itself; .*\n\z/, ran.err)
  end

  def test_purge_as_json_and_to_a_file
    Dir.mktmpdir do |directory|
      path = File.join(directory, "purge.json")
      levers = Memscope::Purge.missing.select { |_lever, missing| missing.nil? }.keys.first(2)
      ran = memscope("purge", "--dry-run", "--json", "--output", path, *levers.reverse.map(&:name))
      result = Memscope::Purge::Result.from_h(JSON.parse(File.read(path)))

      assert_equal [0, ""], [ran.status, ran.out]
      assert_equal [levers, true], [result.levers.map(&:name), result.dry_run?]
    end
  end

  def test_purge_refuses_what_is_not_there
    skip_under_sanitizer
    allowed = Memscope::Purge.missing.select { |_lever, missing| missing.nil? }.keys.map(&:inspect).join(", ")
    lever = "memscope purge: lever: given :vacuum, allowed: #{allowed}"

    assert_refused lever, "purge", "gc", "vacuum"
  end

  def test_help
    [["--help"], ["-h"], ["help"]].each do |arguments|
      ran = memscope(*arguments)

      assert_equal [0, ""], [ran.status, ran.err]
      assert_match(/^  report    print where/, ran.out)
      assert_operator ran.out.lines.map { |line| line.chomp.length }.max, :<=, 80
    end
  end

  def test_help_of_each_command_shows_an_example
    Memscope::CLI::COMMANDS.each do |name|
      ran = memscope(name, "--help")

      assert_equal [0, ""], [ran.status, ran.err]
      assert_match(/^usage: memscope #{name} \[options\]/, ran.out)
      assert_match(/^example:\n  memscope #{name} --/, ran.out)
    end
  end

  def test_version
    assert_equal "memscope 0.1.0\n", ChildProcess.run_command(*command("report"), "--version").out
    [["version"], ["--version"], ["-v"]].each do |arguments|
      assert_match(/\Amemscope 0\.1\.0 \(ruby \d/, memscope(*arguments).out)
    end
  end

  def test_usage_errors
    commands = "report, doctor, census, heap, dump, profile, leaks, tags, requires, watch, purge, " \
               "top, ps, exec, --help, --version"

    assert_refused "memscope: unknown command: reprot (did you mean report?); allowed: #{commands}", "reprot"
    assert_refused "memscope: unknown command: gc; allowed: #{commands}", "gc"
    allowed = "--pid N, --socket PATH, --json, --output FILE, --markdown, --deep, --shared, --objects, --garbage, " \
              "--mappings, --arenas, --size-classes, --workers, --gc, --every SECONDS, --help, [-- COMMAND [ARG...]]"

    assert_refused "memscope report: invalid option: --yaml; allowed: #{allowed}", "report", "--yaml"
    assert_refused "memscope report: invalid option: --shaerd (did you mean --shared?); allowed: #{allowed}",
                   "report", "--shaerd"
    assert_refused "memscope report: needless argument: --json=1; allowed: #{allowed}", "report", "--json=1"
    assert_refused "memscope report: unexpected argument: ruby; allowed: #{allowed}", "report", "ruby", "app.rb"
    assert_refused "memscope ps: unexpected argument: x; allowed: --json, --help", "ps", "x"
    assert_refused "memscope report: missing argument: --output; allowed: #{allowed}", "report", "--output"
  end

  # Each message names the allowed values of its own option, not the other options.
  WRONG_VALUES = {
    %w[profile --format=nope] =>
      "--format: given \"nope\", allowed: text, json, speedscope, pprof, html",
    %w[profile --backend gperf] => "--backend: given \"gperf\", allowed: auto, jemalloc, imports",
    %w[profile --by=gem] => "--by: given \"gem\", allowed: line, caller, method, native, library, stack, " \
                            "generation, tag, thread, class",
    %w[profile --rate=3] => "--rate: given \"3\", allowed: a power of two, from 512 to 1073741824",
    %w[profile --ra=3] => "--rate: given \"3\", allowed: a power of two, from 512 to 1073741824",
    %w[profile --seconds x] => "--seconds: given \"x\", allowed: a number of seconds above 0, up to 86400",
    %w[report --pid abc] => "--pid: given \"abc\", allowed: a process ID, as `memscope ps` lists them",
    %w[dump --from heap.json] => "--from needs --output FILE",
    %w[dump --from heap.json -o x.pftrace --pid 1] => "--from and --pid exclude each other",
    %w[profile --objects --pid=1 --rate=4096] => "--objects and --rate exclude each other",
    %w[doctor --since before.json -- ruby] => "--since is not for -- COMMAND",
    %w[leaks --threshold=0 -- ruby] => "--threshold: given \"0\", allowed: a number above 0",
    %w[profile --objects --pid=1 --budget=2] => "--budget: given \"2\", allowed: a number above 0, at most 1",
    %w[profile --pid=1 --budget=0.5] => "--budget is only for --objects",
    %w[profile --objects --pid=1 --by=native] =>
      "--by: given native, allowed for this profile: line, caller, method, class, library, stack, generation, " \
      "tag, thread",
    %w[profile --pid=1 --by=class] =>
      "--by: given class, allowed for this profile: line, caller, method, native, library, stack, generation, " \
      "tag, thread",
    %w[top --every=0] => "--every: given \"0\", allowed: a number of seconds above 0, up to 86400"
  }.freeze

  def test_wrong_values_are_answered_with_the_option_s_own
    WRONG_VALUES.each do |arguments, message|
      assert_refused "memscope #{arguments.first}: #{message}", *arguments
    end
    assert_operator memscope("report", "--pid", "9" * 5000).err.size, :<, 300
    assert_match(/--by is for --format=text/, memscope("profile", "--pid=1", "--by=tag", "--format=json").err)
  end

  def test_files_are_not_read_without_end
    [%w[profile --from], %w[doctor --since]].each do |command, option|
      ran = memscope(command, option, "/dev/zero")

      assert_equal 74, ran.status
      assert_match(%r{\Amemscope #{command}: #{option} /dev/zero: json: given 67108864 bytes of invalid}, ran.err)
    end
  end

  def test_without_a_command_the_overview_is_an_error
    ran = memscope

    assert_equal [64, ""], [ran.status, ran.out]
    assert_includes ran.err, "usage: memscope COMMAND [options]"
  end

  def test_the_executable
    ran = ChildProcess.run_command(*command("report"), "--json")

    assert_predicate ran, :success?
    assert_equal ran.json["rows"].sum { |row| row["bytes"] }, ran.json["rss_bytes"]
    assert_equal 64, ChildProcess.run_command(*command("bogus")).status.exitstatus
  end

  def test_the_executable_in_a_plain_locale
    ran = ChildProcess.run_command(*command("report"), env: { "LC_ALL" => "C" })

    assert_predicate ran.out, :ascii_only?
    assert_includes ran.out, "|- "
  end
end
