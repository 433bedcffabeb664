# frozen_string_literal: true

require "minitest/mock"
require_relative "../test_helper"
require "memscope/cli/cli"
require "memscope/tasks"

class TasksTest < MemscopeTest
  NAMES = %w[census doctor heap purge report].freeze

  def setup = skip_under_sanitizer

  # What a task prints, and its exit status.
  def run_task(name, options = "")
    ENV["OPTIONS"] = options
    status = 0
    out, err = capture_io do
      Rake::Task["memscope:#{name}"].tap(&:reenable).invoke
    rescue SystemExit => e
      status = e.status
    end
    [out, err, status]
  ensure
    ENV.delete("OPTIONS")
  end

  def test_each_task_runs_the_command_of_its_name
    given = []
    Memscope::CLI.stub(:run, ->(arguments) { given << arguments and 0 }) do
      NAMES.each { |name| run_task(name, "--pid 7 --paths-to 'A B'") }
    end

    assert_equal(NAMES.map { |name| [name, "--pid", "7", "--paths-to", "A B"] }, given)
  end

  def test_a_report_of_this_process
    out, err, status = run_task(:report)

    assert_includes out, "= RSS of this reading, to the byte"
    assert_match(/\Amemscope report: this is the memscope process itself/, err)
    assert_equal 0, status
    assert_equal "ledger", JSON.parse(run_task(:report, "--json").first)["kind"]
  end

  def test_a_command_that_fails_fails_the_task
    assert_equal ["", 64], run_task(:report, "--jsno").values_at(0, 2)
    _out, err, status = run_task(:census, "--pid 999999999")

    assert_match(/\Amemscope census: there is no process 999999999/, err)
    assert_equal 74, status
    assert_equal(1, Memscope::CLI.stub(:run, 1) { run_task(:doctor).last })
  end
end
