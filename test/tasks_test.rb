# frozen_string_literal: true

require "tmpdir"
require_relative "test_helper"

class TasksTest < MemscopeTest
  parallelize_me!

  RUN = 'require "memscope/tasks"; Rake::Task["memscope:report"].invoke'
  PURGE = 'require "memscope/tasks"; Rake::Task["memscope:purge"].invoke'

  def test_report
    ran = child(RUN)

    assert_predicate ran, :success?, ran
    assert_includes ran.out, "= RSS of this reading, to the byte"
    assert_match(/^memscope:report: for this rake process itself \(pid \d+\)$/, ran.err)
  end

  def test_report_as_json
    ledger = child(RUN, env: { "FORMAT" => "json" }).json

    assert_equal "ledger", ledger["kind"]
    assert_equal(ledger["rss_bytes"], ledger["rows"].sum { |row| row["bytes"] })
  end

  def test_purge
    ran = child(PURGE, env: { "LEVERS" => "gc" })

    assert_predicate ran, :success?, ran
    assert_match(/^  gc .* holds the GVL$/, ran.out)
    assert_match(/^memscope:purge: for this rake process itself \(pid \d+\)$/, ran.err)
  end

  def test_purge_as_json
    result = child(PURGE, env: { "FORMAT" => "json", "DRY_RUN" => "1", "LEVERS" => "trim,gc" }).json

    assert_equal ["purge", true], result.values_at("kind", "dry_run")
    assert_equal(%w[gc trim], result["levers"].map { |lever| lever["name"] })
  end

  def test_an_unknown_lever_is_refused
    ran = child(PURGE, env: { "LEVERS" => "vacuum" })

    refute_predicate ran, :success?
    assert_includes ran.err, "lever: given :vacuum, allowed: :gc"
  end

  def test_a_purge_beside_another_one_is_refused
    busy = 'Memscope.define_singleton_method(:purge) { |*, **| raise Memscope::Purge::Busy, "another one runs" }'
    ran = child("require 'memscope'; #{busy}; #{PURGE}")

    refute_predicate ran, :success?
    assert_equal "memscope:purge: another one runs", ran.err.lines.last.chomp
  end

  def test_another_format_is_refused
    ran = child(RUN, env: { "FORMAT" => "yaml" })

    refute_predicate ran, :success?
    assert_includes ran.err, 'FORMAT: given "yaml", allowed: text, json'
    assert_empty ran.out
  end

  def test_doctor
    ran = child('require "memscope/tasks"; Rake::Task["memscope:doctor"].invoke')

    assert_predicate ran, :success?, ran
    assert_includes ran.out, "No problems found"
    assert_match(/^memscope:doctor: for this rake process itself \(pid \d+\)$/, ran.err)
  end

  def test_doctor_fails_where_something_is_wrong
    skip_under_sanitizer
    ran = child('require "memscope/tasks"; Rake::Task["memscope:doctor"].invoke',
                env: { "JE_MALLOC_CONF" => "narenas:2", "FORMAT" => "json" })

    assert_equal 1, ran.status.exitstatus, ran
    assert_equal "unread_settings", JSON.parse(ran.out).dig("findings", 0, "id")
    assert_match(/^memscope:doctor: JE_MALLOC_CONF: /, ran.err)
  end

  def test_defining_tasks_does_not_load_memscope
    ran = child("puts Rake.application.tasks.map(&:to_s), defined?(Memscope.rss).inspect",
                requires: ["memscope/tasks"])

    names = %w[arenas census doctor heap metrics purge report size_classes]

    assert_equal [*names.map { |name| "memscope:#{name}\n" }, "nil\n"], ran.out.lines
  end

  # The instances of a class and the constant that holds them, in a process that has no application loaded.
  def test_heap
    script = "Held = Class.new; KEPT = Array.new(500) { Held.new }; "
    run = lambda do |env|
      child(%(#{script}require "memscope/tasks"; Rake::Task["memscope:heap"].invoke), requires: [], env: env)
    end

    assert_match(/^ +\d+\.\d  KEPT (?:→|->) Array (?:→|->) Held \(500 alike\)$/, run.call({ "PATHS_TO" => "Held" }).out)
    assert_equal "heap_graph", run.call({ "FORMAT" => "json" }).json["kind"]
    assert_match(/^memscope:heap: .*paths_to: given ""/, run.call({ "PATHS_TO" => "" }).err)
  end

  def test_the_task_describes_itself
    ran = child('require "rake"; Rake::TaskManager.record_task_metadata = true; require "memscope/tasks"; ' \
                'puts Rake::Task["memscope:report"].comment')

    assert_equal "Print where the memory of this rake process, or of PID=, is (FORMAT=json)\n", ran.out
  end

  %i[arenas size_classes].each do |name|
    define_method("test_#{name}") do
      skip_under_sanitizer
      preload = ChildProcess::ALLOCATORS[:jemalloc]
      text = run_task(name, preload: preload)

      assert_predicate text, :success?, text
      assert_match(/jemalloc/, text.out)
      assert_equal name.name, run_task(name, preload: preload, env: { "FORMAT" => "json" }).json["kind"]
    end
  end

  # Wrong variables, and the message about each, without a backtrace.
  WRONG = {
    { "PID" => "self" } => 'PID: given "self", allowed: the number of a process, as `memscope ps` lists them',
    { "PID" => "0" } => 'PID: given "0", allowed: the number of a process',
    { "FORMAT" => "xml" } => 'FORMAT: given "xml", allowed: text, json'
  }.freeze

  def test_wrong_variables
    reports(WRONG.keys).zip(WRONG.values) do |said, sentence|
      assert_equal "memscope:report: #{sentence}", said[0, "memscope:report: #{sentence}".size]
      assert_equal "exit 1\n", said.lines[1..].join
    end
  end

  # The script's process listens, and the task that it starts queries it.
  def test_a_process_that_listens
    out, ledger, dry = Dir.mktmpdir do |directory|
      [run_beside(:report, directory), run_beside(:report, directory, { "FORMAT" => "json" }).json,
       run_beside(:purge, directory, { "FORMAT" => "json", "LEVERS" => "gc", "DRY_RUN" => "1" }).json]
    end
    pid = out.err[/^memscope:report: for process (\d+)$/, 1]

    refute_nil pid, out
    assert_includes out.out, "pid #{pid}"
    assert_equal "ledger", ledger["kind"]
    assert_equal [true, ["gc"]], [dry["dry_run"], dry["levers"].map { |lever| lever["name"] }]
  end

  # The kernel says where the socket is, wherever the application has put it.
  def test_no_application_is_loaded_to_find_a_process
    Dir.mktmpdir do |directory|
      ran = run_beside(:report, directory, before: "Rake::Task.define_task(:environment) { abort 'it is loaded' }; " \
                                                   "ENV.delete('MEMSCOPE_SOCKET_DIRECTORY')")

      assert_predicate ran, :success?, ran
      assert_match(/pid #{ran.err[/^memscope:report: for process (\d+)$/, 1]}$/, ran.out)
    end
  end

  def test_a_process_that_is_gone
    pid = Process.spawn("true").tap { |child| Process.wait(child) }

    assert_match(/^memscope:report: PID: .*\bno process #{pid}\b/, run_task(:report, env: { "PID" => pid.to_s }).err)
  end

  # The same behaviour as `memscope report --pid`.
  def test_a_process_that_does_not_listen
    silent = "process #{Process.pid} does not listen: let it require \"memscope\" and start it with " \
             "MEMSCOPE_LISTEN=1, or call Memscope.listen in it"
    ran = run_task(:report, env: { "PID" => Process.pid.to_s })

    assert_predicate ran, :success?, ran
    assert_includes ran.out, "pid #{Process.pid} seen from outside"
    assert_equal "memscope:report: #{silent}; this is the kernel's view only\n", ran.err.lines.last
    assert_equal "external_process",
                 run_task(:report, env: { "PID" => Process.pid.to_s, "FORMAT" => "json" }).json["kind"]
    ran = run_task(:doctor, env: { "PID" => Process.pid.to_s })

    assert_equal ["memscope:doctor: PID: #{silent}\n", 1, ""], [ran.err.lines.last, ran.status.exitstatus, ran.out]
  end

  def test_a_process_of_another_user
    skip "only root can become another user" unless Process.uid.zero?
    skip_unless_readable_for(65_534)
    ran = run_task(:report, env: { "PID" => "1" }, before: "Process::UID.change_privilege(65_534);")

    assert_match(/^memscope:report: process 1 is another user's .*; this is the kernel's view only$/, ran.err)
    assert_includes ran.out, "pid 1 seen from outside"
  end

  def test_metrics
    needs("prometheus")

    assert_match(/^memscope_rss_bytes \d+/, run_task(:metrics).out)
  end

  def test_metrics_of_a_pid
    assert_includes run_task(:metrics, env: { "PID" => "1" }).err,
                    "PID: given 1, allowed: none; a server's metrics are on its page /metrics"
  end

  def test_metrics_are_text
    assert_equal "memscope:metrics: FORMAT: given \"json\", allowed: text\n",
                 run_task(:metrics, env: { "FORMAT" => "json" }).err
  end

  private

  def needs(part)
    skip "there is no #{part}" unless File.exist?(File.join(ChildProcess::ROOT, "lib/memscope/#{part}.rb"))
  end

  # Rake is a gem.
  def child(script, **options) = ChildProcess.run(script, gems: true, **options)

  def run_beside(name, directory, env = {}, before: "")
    task = "require \"memscope/tasks\"; #{before}; Rake::Task[\"memscope:#{name}\"].invoke"
    options = ChildProcess::LOAD_PATH.map { |path| "-I#{path}" }
    child(<<~RUBY, requires: ["memscope"], env: { "MEMSCOPE_SOCKET_DIRECTORY" => directory, **env })
      Memscope.listen
      exit(system({ "PID" => Process.pid.to_s }, #{RbConfig.ruby.dump}, *#{options.inspect}, "-e", #{task.dump}))
    RUBY
  end

  # What memscope:report prints in each of these environments, and how it ends.
  def reports(environments)
    ran = child(<<~RUBY, requires: ["memscope/tasks"])
      #{environments.inspect}.each do |variables|
        ENV.update(variables)
        Rake::Task["memscope:report"].tap(&:reenable).invoke
      rescue SystemExit => e
        warn "exit \#{e.status}", "--"
      ensure
        variables.each_key { |name| ENV.delete(name) }
      end
    RUBY

    assert_empty ran.out
    ran.err.split("--\n")
  end

  def run_task(name, before: "", **options)
    child("#{before}require \"memscope/tasks\"; Rake::Task[\"memscope:#{name}\"].invoke", **options)
  end
end
