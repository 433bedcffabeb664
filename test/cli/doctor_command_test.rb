# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/charts"
require_relative "../support/launching"
require "memscope/cli/cli"
require "stringio"
require "tmpdir"

class CLIDoctorTest < MemscopeTest
  include Launching

  Ran = Struct.new(:status, :out, :err)

  # Runs the command in this process.
  def doctor(*arguments)
    out = StringIO.new
    err = StringIO.new
    Ran.new(Memscope::CLI.run(["doctor", *arguments], out: out, err: err), out.string, err.string)
  end

  # The exit status for a process with the evidence in that chart.
  def exit_status(**chart)
    diagnosis = Memscope::Doctor.diagnose(Charts.evidence(**chart))
    calls = Memscope.singleton_class
    calls.alias_method(:examine, :doctor)
    calls.remove_method(:doctor)
    calls.define_method(:doctor) { |**| diagnosis }
    doctor.status
  ensure
    calls.remove_method(:doctor)
    calls.alias_method(:doctor, :examine)
    calls.remove_method(:examine)
  end

  def test_text
    ran = doctor

    assert_includes [0, 1], ran.status
    assert_match(/No problems found|warning/, ran.out)
    assert_match(/\Amemscope doctor: this is the memscope process itself \(.*\n\z/, ran.err)
  end

  def test_json_to_a_file_and_since_it
    Dir.mktmpdir do |directory|
      path = File.join(directory, "diagnosis.json")

      assert_equal "", doctor("--json", "--output", path).out
      earlier = Memscope::Diagnosis.from_json(File.read(path))
      later = Memscope::Diagnosis.from_json(doctor("--json", "--since", path).out)

      growth = later.checked.find { |check| check.id == :native_growth }

      assert_equal [Process.pid, :clear], [earlier.pid, growth.outcome], later
    end
  end

  def test_exit_statuses
    assert_equal 0, exit_status
    assert_equal 0, exit_status(malloc: Charts.glibc(untracked: 60))
    assert_equal 1, exit_status(malloc: Charts.glibc(main_free: 90, main_trimmable: 80))
    assert_equal 2, exit_status(cgroup: { limit_bytes: 310 * Charts::MEBIBYTE })
  end

  # In a new process, which no other test has changed.
  def test_settings
    json, text = [%w[--json], []].map do |options|
      ChildProcess.run("exit Memscope::CLI.run(#{['doctor', '--settings', *options]})", requires: ["memscope/cli/cli"])
    end

    assert_equal [0, "lint"], [json.status.exitstatus, JSON.parse(json.out)["kind"]]
    assert_match(/No problems found in the settings/, text.out)
    assert_equal [64, 64], [doctor("--settings", "--since", "x"), doctor("--settings", "--gc")].map(&:status)
  end

  def test_garbage_is_collected_when_asked_for
    diagnoses = [[], %w[--gc]].map { |given| Memscope::Diagnosis.from_json(doctor("--json", *given).out) }
    without, with = diagnoses.map { |diagnosis| diagnosis.evidence.ledger }

    assert_nil without.collected
    assert_operator with.collected.pause_us, :positive?
    assert_operator with.garbage_max_bytes, :<, 4 * Charts::MEBIBYTE
  end

  def test_another_process_cannot_be_compared_with
    Dir.mktmpdir do |directory|
      path = File.join(directory, "other.json")
      IO.popen("-") { |io| io ? io.read : File.write(path, Memscope.doctor.to_json) }
      ran = doctor("--since", path)

      assert_equal [64, ""], ran.to_a.first(2)
      assert_match(/^memscope doctor: --since .*another process \(pid \d+, read at .*\), allowed: one of this/, ran.err)
    end
  end

  def test_settings_of_a_program
    ran = launch("doctor", "--settings", "--", *RUBY, "-e", "warn :script",
                 env: { "MALLOC_ARENA_MAX" => "few" })

    assert_exit 0, ran
    assert_match(/\Ascript$.*^  warning: MALLOC_ARENA_MAX: arena_max, given "few"/m, ran.err)
    ran = launch("doctor", "--settings", "--json", "--", *RUBY, "-e", "exit 3")

    assert_exit 3, ran
    assert_equal "lint", JSON.parse(ran.err.lines.last)["kind"]
    assert_exit 64, launch("doctor", "--settings", "--every=1", "--", "true"), err: /exclude each other/
  end

  def test_what_cannot_be_compared_with
    Dir.mktmpdir do |directory|
      path = File.join(directory, "other.json")
      File.write(path, "[]")

      assert_equal [74, ""], doctor("--since", path).to_a.first(2)
      assert_match(/\Amemscope doctor: --since .*other\.json: .*allowed: /, doctor("--since", path).err)
      assert_equal [74, ""], doctor("--since", "#{path}.gone").to_a.first(2)
    end
  end

  def test_of_a_program_when_it_ends
    ran = launch("doctor", "--", *RUBY, "-e", "puts 1; exit 3")

    assert_exit 3, ran, out: "1\n", err: /No problems found\. RSS .* MiB/
  end

  def test_growth_of_a_program_since_its_first_diagnosis
    skip_under_sanitizer
    script = "sleep 0.01 while $stderr.stat.size.zero?; Host.malloc_blocks(1_000, 64_000)"
    ran = launch("doctor", "--every", "0.5", "--json", "--", RbConfig.ruby,
                 "-I#{ChildProcess::TEST_EXTENSION_DIRECTORY}", "-rmemscope_test", "-e", script)
    last = Memscope::Diagnosis.from_json(ran.err.lines.last)

    assert_exit 0, ran
    assert_equal :native_growth, last.first.id
  end
end
