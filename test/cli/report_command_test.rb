# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/command_line"
require "tmpdir"

class CLIReportTest < MemscopeTest
  include CommandLine

  def test_report
    ran = run_memscope("report")

    assert_equal 0, ran.status
    assert_includes ran.out, "= RSS of this reading, to the byte"
    assert_match(/\Amemscope report: this is the memscope process itself \(.*\n\z/, ran.err)
  end

  def test_report_as_json
    ran = run_memscope("report", "--json")
    ledger = Memscope::Ledger.from_h(JSON.parse(ran.out))

    assert_equal 1, ran.out.lines.size
    assert_equal [Process.pid, 0], [ledger.pid, ran.status]
  end

  def test_report_of_all_that_can_be_asked_for
    skip_under_sanitizer
    ran = run_memscope("report", "--json", "--deep", "--shared", "--objects")
    ledger = Memscope::Ledger.from_h(JSON.parse(ran.out))

    assert_operator ledger.held_by_objects_bytes, :positive?
    assert_operator ledger.dig(:malloc, :main_heap, :in_use).bytes, :positive?
    assert_operator ledger[:files].shared_bytes, :positive?
  end

  def test_report_tells_garbage_apart
    skip_under_sanitizer
    Thread.new { Array.new(2_000) { |number| number.to_s * 1_000 } && nil }.join
    ledger = Memscope::Ledger.from_h(JSON.parse(run_memscope("report", "--json", "--garbage").out))
    text = run_memscope("report", "--garbage").out

    assert_operator ledger.garbage_bytes, :positive?
    assert_match(/in use .*\n +[\d.]+ .*reachable or native\n +[\d.]+ .*garbage\n/, text)
    assert_match(/^  [\d.]+ [KM]iB of live slots and of malloc memory in use, resident or not, is\s+garbage/, text)
  end

  def test_report_of_the_mappings
    ran = run_memscope("report", "--mappings")

    assert_equal 0, ran.status
    assert_match(%r{^ +[\d,]+ +[\d,]+ +rw-p  \h+  stacks/main  \[stack\]$}, ran.out)

    ran = run_memscope("report", "--mappings", "--json")

    assert_equal Process.pid, Memscope::Mappings.from_h(JSON.parse(ran.out)).pid
  end

  def test_report_of_malloc
    skip_under_sanitizer
    ran = run_memscope("report", "--arenas", "--size-classes", "--arenas", "--json")
    kinds = ran.out.lines.map { |line| JSON.parse(line)["kind"] }

    assert_equal %w[arenas size_classes], kinds
    assert_equal 74, ran.status, "glibc has no size classes"
    assert_equal 0, run_memscope("report", "--arenas").status
  end

  def test_report_to_a_file
    Dir.mktmpdir do |directory|
      path = File.join(directory, "ledger.json")
      ran = run_memscope("report", "--json", "--output", path)

      assert_equal [0, ""], [ran.status, ran.out]
      assert_equal 0o600, File.stat(path).mode & 0o777
      assert_equal "ledger", JSON.parse(File.read(path))["kind"]
    end
  end

  def test_the_mappings_have_no_depth
    ran = run_memscope("report", "--mappings", "--deep")

    assert_equal [64, ""], [ran.status, ran.out]
    assert_includes ran.err, "--mappings and --deep exclude each other\n"
  end

  def test_markdown
    ran = run_memscope("report", "--markdown")

    assert_equal 0, ran.status
    assert_match(/\A````text\nmemscope .*= RSS of this reading.*\n````\n\z/m, ran.out)
    assert_match(/\A````text\nmemscope .*\n````\n\z/m, run_memscope("report", "--markdown", "--arenas").out)
    assert_includes run_memscope("report", "--markdown", "--json").err, "--markdown and --json exclude each other"
    assert_includes run_memscope("doctor", "--markdown", "--settings").err,
                    "--settings and --markdown exclude each other"
  end

  def test_a_file_that_exists_stays_as_it_is
    Dir.mktmpdir do |directory|
      path = File.join(directory, "notes.txt")
      File.write(path, "mine")
      ran = run_memscope("report", "--output=#{path}")

      assert_equal [74, ""], [ran.status, ran.out]
      assert_match(/^memscope report: --output #{path}: File exists; allowed: a file that does not exist yet, in a/,
                   ran.err)
      assert_equal "mine", File.read(path)
    end
  end

  def test_a_link_is_not_followed
    Dir.mktmpdir do |directory|
      File.symlink(File.join(directory, "target"), File.join(directory, "link"))

      assert_equal 74, run_memscope("report", "--output", File.join(directory, "link")).status
      refute_path_exists File.join(directory, "target")
    end
  end

  def test_a_file_that_cannot_be_made
    ran = run_memscope("report", "--output", "/nowhere/ledger.json")

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
    assert_includes ran.err, "memscope report: standard output: No space left on device\n"
  end
end
