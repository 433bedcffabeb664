# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/command_line"
require_relative "../support/listening"
require "tmpdir"

# Commands on a process that has never loaded memscope.
class CLICopyingTest < MemscopeTest
  include CommandLine
  include Listening

  SCRIPT = "class Order; end; KEPT = Array.new(500) { Order.new }"
  TAKEN = /^  taken from outside: paused [\d.]+ ms, child [\d.]+ m?s; memscope was not loaded$/

  def setup
    skip_under_sanitizer
    super
  end

  def test_report
    process = bystander
    text = printed_by("report", "--pid", process.pid.to_s)

    assert_match(/\Amemscope .* pid #{process.pid}$/, text)
    assert_includes text, "= RSS of this reading, to the byte"
    assert_match(TAKEN, text)
    assert_goes_on(process)
  end

  def test_json_has_the_pause
    process = bystander
    ledger = Memscope::Ledger.from_json(printed_by("report", "--pid", process.pid.to_s, "--deep", "--json"))

    assert_operator ledger.cost.gvl_us, :positive?
    assert_equal process.pid, ledger.pid
    assert_goes_on(process)
  end

  def test_several_readings_of_one_copy
    text = printed_by("report", "--pid", bystander.pid.to_s, "--mappings", "--arenas")

    assert_equal 1, text.scan(TAKEN).size
  end

  def test_heap_and_census
    pid = bystander.pid.to_s

    assert_match(/KEPT → Array → Order \(500 alike\)/, printed_by("heap", "--pid", pid, "--paths-to", "Order"))
    census = Memscope::Census.from_json(printed_by("census", "--pid", pid, "--gc", "--json"))

    assert_equal 500, census.by(:class).find { |row| row.name == "Order" }.count
  end

  def test_doctor
    ran = run_memscope("doctor", "--pid", bystander.pid.to_s)

    assert_match(/Checked, nothing significant: /, ran.out)
    assert_match(TAKEN, ran.out)
  end

  def test_dump
    process = bystander
    Dir.mktmpdir do |directory|
      path = File.join(directory, "heap.json")
      text = printed_by("dump", "--pid", process.pid.to_s, "--output", path)

      assert_match(TAKEN, text)
      assert_equal 0o600, File.stat(path).mode & 0o777
      assert_match(/500 .*Order/, printed_by("heap", path, "--paths-to", "Order").gsub(/\s+/, " "))
    end
    assert_goes_on(process)
  end

  # As before copies: the kernel's view, or an error.
  def test_without_a_copy
    pid = bystander.pid.to_s
    ran = run_memscope("report", "--no-attach", "--pid", pid)

    assert_includes ran.out, "pid #{pid} seen from outside"
    assert_match(/ does not listen: .*, so this is the kernel's view only$/m, ran.err)
    assert_equal 74, run_memscope("census", "--no-attach", "--pid", pid).status
  end

  # A process that is no Ruby, and one that cannot be copied.
  def test_the_kernels_view_with_the_reason
    sleeper = Process.spawn("sleep", "60")

    ran = run_memscope("report", "--pid", sleeper.to_s)

    assert_equal "memscope report: process #{sleeper} does not listen, and is no Ruby, by the name of its program, " \
                 "so this is the kernel's view only\n", ran.err
    refute_match(/attach|MEMSCOPE_LISTEN/, ran.out)
    process = bystander
    ran = run_memscope("report", "--so", "/none.so", "--pid", process.pid.to_s)

    assert_includes ran.out, "seen from outside"
    assert_equal "memscope report: /none.so: No such file or directory, so this is the kernel's view only\n", ran.err
    assert_equal [74, "memscope census: /none.so: No such file or directory"],
                 refused("census", "--so", "/none.so", "--pid", process.pid.to_s)
  ensure
    Process.kill(:KILL, sleeper)
    Process.wait(sleeper)
  end

  def test_a_process_that_listens_is_not_copied
    process = listening

    refute_match(TAKEN, printed_by("report", "--pid", process.pid.to_s))
  end

  def test_calls_that_need_the_process
    process = bystander

    assert_equal 74, run_memscope("watch", "--pid", process.pid.to_s).status
    assert_match(/\Aworkers needs process \d+ itself, not a copy: /,
                 refused("report", "--workers", "--pid", process.pid.to_s).last.delete_prefix("memscope report: "))
  end

  def test_options_that_exclude_each_other
    assert_equal [64, "memscope report: --no-attach and --pause exclude each other"],
                 refused("report", "--pid", "1", "--no-attach", "--pause")
    assert_equal [64, "memscope report: --so is not for -- COMMAND"], refused("report", "--so", "x", "--", "true")
  end

  private

  # A Ruby that has not loaded memscope.
  def bystander = start(SCRIPT, requires: [])

  def assert_goes_on(process)
    process.tell("KEPT.size")

    assert_equal "500", process.gets
  end
end
