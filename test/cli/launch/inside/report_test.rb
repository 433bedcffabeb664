# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/allocator_fixtures"
require_relative "../../../support/reporting_programs"
require "memscope/cli/cli"
require "stringio"

class ProgramReportTest < MemscopeTest
  include ReportingPrograms
end

class ProgramReportAtTheEndTest < ProgramReportTest
  parallelize_me!

  def test_the_first_screen
    ran = report("--", *ruby("puts 1"))

    assert_exit 0, ran, out: "1\n", err: /\Amemscope .* serves malloc \(proved\).*= RSS of this reading, to the byte/m
    assert_match(/├─ main heap|\|- main heap/, ran.err)
    assert_match(/in use/, ran.err)
  end

  def test_it_is_deep
    ran = report("--json", "--", *ruby("1"))

    assert_includes assert_one_report(ran).dig(:malloc, :main_heap).children.map(&:id), :in_use
  end

  def test_several_readings_of_the_program
    ran = report("--arenas", "--mappings", "--json", "--", *ruby("puts Process.pid"))
    arenas, mappings = ran.err.lines.map { |line| JSON.parse(line) }

    assert_exit 0, ran
    assert_equal([["arenas", ran.out.to_i], ["mappings", ran.out.to_i]],
                 [arenas, mappings].map { |reading| reading.values_at("kind", "pid") })
    assert_operator Memscope::Mappings.from_h(mappings).sum(&:resident_bytes), :positive?
  end

  def test_the_diagnosis_of_the_program
    ran = launch("doctor", "--json", "--", *ruby("puts Process.pid"))
    diagnosis = JSON.parse(ran.err)

    assert_exit 0, ran
    assert_equal ["diagnosis", ran.out.to_i], diagnosis.values_at("kind", "pid")
    assert_match(/no problems found/i, launch("doctor", "--", *ruby("1")).err)
  end

  # As those under `memscope exec`.
  only_in_full def test_exit_statuses_and_signals_are_the_programs_own
    silent = ["Process.kill(:KILL, $$); sleep", "exit! 4"]
    assert_ends_alike("report", "--json") do |script, ran|
      assert_equal silent.include?(script) ? 0 : 1, ledgers(ran.err).size, "#{script}: #{ran}"
    end
  end

  def test_a_daemon_does_not_report_and_the_help_says_so
    assert_exit 0, report("--", *ruby("Process.daemon")), out: "", err: ""
    assert_match(/unless it .*\sProcess\.daemon/m, report("--help").out)
  end

  def test_under_bundler
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    File.write(path("Gemfile"), "")
    script = make("app.rb", "#!/usr/bin/env ruby\nrequire 'bundler/setup'\nputs Process.pid\n")
    ran = report("--json", "--", "bundle", "exec", script, env: { "BUNDLE_GEMFILE" => path("Gemfile") })

    assert_exit 0, ran
    assert_one_report(ran, pid: ran.out.to_i)
  end

  def test_together_with_exec
    skip "libjemalloc.so.2 is not installed" unless AllocatorFixtures.available?("libjemalloc.so.2")
    [%w[exec report], %w[report exec]].each do |outer, inner|
      options = { "exec" => [], "report" => ["--json"] }
      ran = launch(outer, *options[outer], "--", *memscope(inner, *options[inner], "--", *ruby("p 1")))

      assert_exit 0, ran, out: "1\n"
      assert_equal :jemalloc, assert_one_report(ran).allocator.name
    end
  end
end

class ProgramReportIntervalTest < ProgramReportTest
  def test_markdown_of_a_program
    ran = report("--markdown", "--", *ruby("1"))

    assert_match(/^````text\nmemscope .*= RSS of this reading.*\n````$/m, ran.err)
  end

  def test_reports_at_an_interval_and_at_the_end
    ran = report("--every=0.3", "--json", "--", *ruby(until_reported(3)))
    *times, _at_the_end = ledgers(ran.err).map(&:at)

    assert_operator times.size, :>=, 3, ran.to_s
    times.each_cons(2) { |earlier, later| assert_operator later - earlier, :>, 0.298, "of which both are cut to a ms" }
  end

  def test_each_says_when
    ran = report("--every=0.4", "--", *ruby(until_reported(1)))

    assert_match(/\Amemscope report: after \d+\.\d s\n\nmemscope /, ran.err)
    assert_match(/^memscope report: at the end, after \d+\.\d s\n\nmemscope /, ran.err)
  end

  def test_a_program_that_forks_and_one_that_is_killed
    script = "Process.wait(fork { #{until_reported(3)} }); Process.kill(:KILL, $$)"
    ran = report("--every=0.2", "--json", "--", *ruby(script))

    assert_equal 9, ran.status.termsig
    assert_equal 1, ledgers(ran.err).map(&:pid).uniq.size
  end
end

class ProgramReportOutputTest < ProgramReportTest
  def test_to_a_file
    file = path("é 1.json")
    script = "Dir.chdir('/'); sleep 0.01 while File.empty?(#{file.dump}); warn 1"
    ran = report("--json", "--every=0.2", "--output=#{file}", "--", *ruby(script))

    assert_exit 0, ran, out: "", err: "1\n"
    assert_operator ledgers(File.read(file)).size, :>=, 2
    assert_equal 0o600, File.stat(file).mode & 0o777
  end

  def test_a_file_in_the_working_directory
    ran = ChildProcess.run_command("sh", "-c", 'cd "$1"; shift; exec "$@"', "sh", directory,
                                   *memscope("report", "--output", "out.txt", "--", *ruby("Dir.chdir('/')")))

    assert_exit 0, ran, err: ""
    assert_includes File.read(path("out.txt")), "├─"
  end

  def test_a_file_is_checked_before_the_program_starts
    File.write(path("notes"), "mine")
    File.symlink(path("target"), path("link"))
    %w[notes link none/x].each do |name|
      ran = report("--output", path(name), "--", *ruby("puts 'started'"))

      assert_exit 74, ran, out: "", err: /--output .*: (File exists|No such file or directory); allowed: a file that/
    end
    assert_equal "mine", File.read(path("notes"))
    refute_path_exists path("target")
  end

  def test_a_file_goes_when_the_program_cannot_be_started
    assert_exit 127, report("--output", path("out"), "--", "nowhere-to-be-found")
    refute_path_exists path("out")
  end
end

class ProgramReportRefusalTest < ProgramReportTest
  # It may become one by exec.
  def test_a_program_that_is_not_ruby
    ran = report("--", "true")

    assert_exit 0, ran, out: "",
                        err: /\Amemscope report: .*true is not #{RbConfig.ruby}: nothing is done unless it .*\n\z/
    script = make("start.sh", "#!/bin/sh\nexec #{RUBY.join(' ')} -e 'puts $$'\n")
    ran = report("--json", "--", script)

    assert_exit 0, ran
    assert_one_report(ran, pid: ran.out.to_i)
  end

  def test_a_variable_that_env_sets_afterwards
    ran = report("--json", "--", "env", "RUBYOPT=-W0", *ruby("puts 'started'"))

    assert_exit 0, ran, out: "started\n", err: ""
    ran = report("--json", "--", "env", "RUBYLIB=/a", "MALLOC_CONF=", "LD_PRELOAD=", *ruby("puts 'started'"))

    assert_exit 0, ran, out: "started\n"
    assert_one_report(ran)
  end

  def test_usage_errors
    seconds = "allowed: a number of seconds above 0, up to 86400"
    { %w[--] => "no command given; allowed: -- COMMAND",
      %w[--every=0 -- ruby] => "--every: given \"0\", #{seconds}",
      %w[--every=86401 -- ruby] => "--every: given \"86401\", #{seconds}",
      %w[--every=1e300 -- ruby] => seconds, %w[--every=x -- ruby] => "--every: given \"x\", #{seconds}",
      %w[--yaml -- ruby] => "invalid option: --yaml", %w[x -- ruby] => "unexpected argument: x" }
      .each do |arguments, message|
      err = StringIO.new

      assert_equal 64, Memscope::CLI.run(["report", *arguments], out: StringIO.new, err: err)
      assert_includes err.string, message
    end
  end
end
