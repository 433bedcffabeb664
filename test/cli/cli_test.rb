# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/command_line"

class CLITest < MemscopeTest
  include CommandLine

  def test_help
    [["--help"], ["-h"], ["help"]].each do |arguments|
      ran = run_memscope(*arguments)

      assert_equal [0, ""], [ran.status, ran.err]
      assert_match(/^  report +print where/, ran.out)
      assert_operator ran.out.lines.map { |line| line.chomp.length }.max, :<=, 80
    end
  end

  def test_help_of_each_command_shows_an_example
    Memscope::CLI::COMMANDS.each do |name|
      ran = run_memscope(name, "--help")

      assert_equal [0, ""], [ran.status, ran.err]
      assert_match(/^usage: memscope #{name} \[options\]/, ran.out)
      assert_match(/^example:\n  memscope #{name} --/, ran.out)
    end
  end

  # As `| head` does.
  def test_a_reader_that_has_read_enough_is_told_nothing
    reader, writer = IO.pipe
    reader.close
    err = StringIO.new

    assert_equal [74, ""], [Memscope::CLI.run(%w[--help], out: writer, err: err), err.string]
  ensure
    writer.close
  end

  def test_version
    assert_equal "memscope 0.1.0\n", ChildProcess.run_command(*command("report"), "--version").out
    [["version"], ["--version"], ["-v"]].each do |arguments|
      assert_match(/\Amemscope 0\.1\.0 \(ruby \d/, run_memscope(*arguments).out)
    end
  end

  def test_usage_errors
    commands = "report, doctor, census, heap, dump, profile, leaks, tags, requires, watch, postmortem, " \
               "purge, attach, top, ps, exec, mcp, --help, --version"

    assert_refused "memscope: unknown command: reprot (did you mean report?); allowed: #{commands}", "reprot"
    assert_refused "memscope: unknown command: gc; allowed: #{commands}", "gc"
    allowed = "--pid N, --socket PATH, --no-attach, --pause, --so PATH, --json, --output FILE, --markdown, --deep, " \
              "--shared, --objects, --garbage, --mappings, --arenas, --size-classes, --workers, --gc, " \
              "--every SECONDS, --help, [-- COMMAND [ARG...]]"

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
    assert_operator run_memscope("report", "--pid", "9" * 5000).err.size, :<, 300
    assert_match(/--by is for --format=text/, run_memscope("profile", "--pid=1", "--by=tag", "--format=json").err)
  end

  # Names of files have any bytes; so an argument may be invalid in the terminal's encoding.
  def test_arguments_in_any_bytes
    wrong = "a\xFFb"
    [[wrong], ["report", wrong], ["report", "--#{wrong}"], ["report", "--pid=#{wrong}"]].each do |arguments|
      ran = run_memscope(*arguments)

      assert_equal [64, true], [ran.status, ran.err.start_with?("memscope")], ran.err.b
    end
    ran = run_memscope("heap", "/nowhere/#{wrong}")

    assert_equal 74, ran.status
    assert_includes ran.err.b, "/nowhere/a\xFFb: No such file or directory".b
  end

  def test_files_are_not_read_without_end
    [%w[profile --from], %w[doctor --since]].each do |command, option|
      ran = run_memscope(command, option, "/dev/zero")

      assert_equal 74, ran.status
      assert_match(%r{\Amemscope #{command}: #{option} /dev/zero: json: given 67108864 bytes of invalid}, ran.err)
    end
  end

  def test_without_a_command_the_overview_is_an_error
    ran = run_memscope

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
