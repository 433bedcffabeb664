# frozen_string_literal: true

require_relative "test_helper"

class TasksTest < MemscopeTest
  RUN = 'require "memscope/tasks"; Rake::Task["memscope:report"].invoke'
  PURGE = 'require "memscope/tasks"; Rake::Task["memscope:purge"].invoke'

  def test_report
    ran = ChildProcess.run(RUN)

    assert_predicate ran, :success?, ran
    assert_includes ran.out, "= RSS of this reading, to the byte"
    assert_match(/^memscope:report: of this rake process itself \(pid \d+\)$/, ran.err)
  end

  def test_report_as_json
    ledger = ChildProcess.run(RUN, env: { "FORMAT" => "json" }).json

    assert_equal "ledger", ledger["kind"]
    assert_equal(ledger["rss_bytes"], ledger["rows"].sum { |row| row["bytes"] })
  end

  def test_purge
    ran = ChildProcess.run(PURGE, env: { "LEVERS" => "gc" })

    assert_predicate ran, :success?, ran
    assert_match(/^  gc .* holds the GVL$/, ran.out)
    assert_match(/^memscope:purge: of this rake process itself \(pid \d+\)$/, ran.err)
  end

  def test_purge_as_json
    result = ChildProcess.run(PURGE, env: { "FORMAT" => "json", "DRY_RUN" => "1", "LEVERS" => "compact,gc" }).json

    assert_equal ["purge", true], result.values_at("kind", "dry_run")
    assert_equal(%w[gc compact], result["levers"].map { |lever| lever["name"] })
  end

  def test_an_unknown_lever_is_refused
    ran = ChildProcess.run(PURGE, env: { "LEVERS" => "vacuum" })

    refute_predicate ran, :success?
    assert_includes ran.err, "lever: given :vacuum, allowed: :gc"
  end

  def test_another_format_is_refused
    ran = ChildProcess.run(RUN, env: { "FORMAT" => "yaml" })

    refute_predicate ran, :success?
    assert_includes ran.err, 'FORMAT: given "yaml", allowed: text, json'
    assert_empty ran.out
  end

  def test_doctor
    ran = ChildProcess.run('require "memscope/tasks"; Rake::Task["memscope:doctor"].invoke')

    assert_predicate ran, :success?, ran
    assert_includes ran.out, "Nothing wrong"
    assert_match(/^memscope:doctor: of this rake process itself \(pid \d+\)$/, ran.err)
  end

  def test_doctor_fails_where_something_is_wrong
    skip_under_sanitizer
    ran = ChildProcess.run('require "memscope/tasks"; Rake::Task["memscope:doctor"].invoke',
                           env: { "JE_MALLOC_CONF" => "narenas:2", "FORMAT" => "json" })

    assert_equal 1, ran.status.exitstatus, ran
    assert_equal "unread_settings", JSON.parse(ran.out).dig("findings", 0, "id")
    assert_match(/^memscope:doctor: JE_MALLOC_CONF: /, ran.err)
  end

  def test_defining_tasks_does_not_load_memscope
    ran = ChildProcess.run("puts Rake.application.tasks.map(&:to_s), defined?(Memscope.rss).inspect",
                           requires: ["memscope/tasks"])

    assert_equal "memscope:doctor\nmemscope:purge\nmemscope:report\nnil\n", ran.out
  end

  def test_the_task_describes_itself
    ran = ChildProcess.run('require "rake"; Rake::TaskManager.record_task_metadata = true; require "memscope/tasks"; ' \
                           'puts Rake::Task["memscope:report"].comment')

    assert_equal "Print where the memory of this rake process is (FORMAT=json)\n", ran.out
  end
end
