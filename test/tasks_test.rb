# frozen_string_literal: true

require "tmpdir"
require_relative "test_helper"
require_relative "support/http_answers"

class TasksTest < MemscopeTest
  parallelize_me!

  RUN = 'require "memscope/tasks"; Rake::Task["memscope:report"].invoke'
  PURGE = 'require "memscope/tasks"; Rake::Task["memscope:purge"].invoke'

  def test_report
    ran = child(RUN)

    assert_predicate ran, :success?, ran
    assert_includes ran.out, "= RSS of this reading, to the byte"
    assert_match(/^memscope:report: of this rake process itself \(pid \d+\)$/, ran.err)
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
    assert_match(/^memscope:purge: of this rake process itself \(pid \d+\)$/, ran.err)
  end

  def test_purge_as_json
    result = child(PURGE, env: { "FORMAT" => "json", "DRY_RUN" => "1", "LEVERS" => "compact,gc" }).json

    assert_equal ["purge", true], result.values_at("kind", "dry_run")
    assert_equal(%w[gc compact], result["levers"].map { |lever| lever["name"] })
  end

  def test_an_unknown_lever_is_refused
    ran = child(PURGE, env: { "LEVERS" => "vacuum" })

    refute_predicate ran, :success?
    assert_includes ran.err, "lever: given :vacuum, allowed: :gc"
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
    assert_includes ran.out, "Nothing wrong"
    assert_match(/^memscope:doctor: of this rake process itself \(pid \d+\)$/, ran.err)
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

    names = %w[arenas doctor metrics purge report size_classes]

    assert_equal [*names.map { |name| "memscope:#{name}\n" }, "nil\n"], ran.out.lines
  end

  def test_the_task_describes_itself
    ran = child('require "rake"; Rake::TaskManager.record_task_metadata = true; require "memscope/tasks"; ' \
                'puts Rake::Task["memscope:report"].comment')

    assert_equal "Print where the memory is (PID= or URL= of what, else of this rake process; FORMAT=json)\n", ran.out
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

  # A name and a password with what a URL has to escape.
  def test_the_report_of_an_application_that_has_mounted_the_pages
    HTTPAnswers.serve(HTTPAnswers.response(Memscope.ledger.to_json)) do |server|
      ran = run_task(:report, env: { "URL" => "http://memory:a%40b%20c+@127.0.0.1:#{server.port}/memscope/?x=1#y" })

      assert_predicate ran, :success?, ran
      assert_includes ran.out, "= RSS of this reading, to the byte"
      assert_includes ran.out, "pid #{Process.pid}"
      assert_equal "memscope:report: of http://127.0.0.1:#{server.port}/memscope\n", ran.err
      assert_equal "GET /memscope/ledger HTTP/1.1", server.requests.first.lines(chomp: true).first
      assert_match(/^Authorization: Basic #{['memory:a@b c+'].pack('m0')}\r$/, server.requests.first)
      assert_match(%r{^Accept: application/json\r$}, server.requests.first)
    end
  end

  def test_a_host_of_ipv6_is_named_with_its_brackets
    skip "there is no IPv6 here" unless Socket.ip_address_list.any?(&:ipv6_loopback?)
    HTTPAnswers.serve(HTTPAnswers.response(Memscope.ledger.to_json), host: "::1") do |server|
      assert_predicate run_task(:report, env: { "URL" => "http://[::1]:#{server.port}" }), :success?
      assert_match(/^Host: \[::1\]:#{server.port}\r$/i, server.requests.first)
    end
  end

  # Another json writes the same Float with other digits.
  def test_an_ill_application
    diagnosis = Memscope.doctor.to_json
    HTTPAnswers.serve(HTTPAnswers.response(diagnosis)) do |server|
      ran = run_task(:doctor, env: { "URL" => "http://127.0.0.1:#{server.port}", "FORMAT" => "json" })

      assert_equal JSON.parse(diagnosis), JSON.parse(ran.out)
      assert_match(%r{\AGET /doctor HTTP}, server.requests.first)
      refute_match(/^Authorization/, server.requests.first)
    end
  end

  def test_a_purge_of_an_application
    HTTPAnswers.serve(HTTPAnswers.response(Memscope.purge(:gc, dry_run: true).to_json)) do |server|
      url = "http://memory:x@127.0.0.1:#{server.port}/memscope"
      ran = run_task(:purge, env: { "URL" => url, "LEVERS" => "gc, trim", "DRY_RUN" => "1", "FORMAT" => "json" })
      ran_all = run_task(:purge, env: { "URL" => url })
      request = server.requests.first

      assert_equal "purge", ran.json["kind"]
      assert_predicate ran_all, :success?, ran_all
      assert_match(%r{\APOST /memscope/purge HTTP}, request)
      assert_match(/^token=(\S{43})&lever=gc&lever=trim&dry_run=1\z/, request)
      assert_equal request[/^token=(\S{43})/, 1], request[/^Cookie: memscope_token=(\S{43})\r$/, 1]
      assert_match(/^token=\S{43}&lever=all\z/, server.requests.last)
    end
  end

  # One of two workers did not answer: that is printed, and rake fails.
  def test_a_purge_of_a_cluster
    result = Memscope.purge(:gc, dry_run: true)
    parts = [{ index: 0, pid: 4711, result: result, reason: nil }, { index: 1, pid: 4712, result: nil, reason: "gone" }]
    purge = Memscope::Purge::WorkerResults.capture({ dry_run: true, returned_bytes: nil, workers: parts, reasons: {},
                                                 cost: result.cost.to_h })
    HTTPAnswers.serve(HTTPAnswers.response(purge.to_json)) do |server|
      ran = run_task(:purge, env: { "URL" => "http://127.0.0.1:#{server.port}" })

      assert_match(/^ +worker 0 +4711 .*^ +worker 1 +4712 /m, ran.out)
      assert_equal "memscope:purge: worker 1: gone", ran.err.lines(chomp: true).last
      assert_equal 1, ran.status.exitstatus
    end
  end

  def test_the_metrics_of_an_application
    page = "# HELP memscope_rss_bytes é\n"
    answer = HTTPAnswers.response(page, type: "text/plain; version=0.0.4; charset=utf-8")
    found = HTTPAnswers.serve(answer) do |server|
      run_task(:metrics, env: { "URL" => "http://127.0.0.1:#{server.port}" })
    end

    assert_equal page, found.out
  end

  # What is asked, answered and said of it; BASE stands for the address.
  ANSWERS = {
    HTTPAnswers.response("<!DOCTYPE html><p>Hello", type: "text/html") =>
      "answered text/html, not application/json; allowed: the address at which Memscope::Web is mounted, such as",
    HTTPAnswers.response("", type: nil) => "answered nothing that has a type, not application/json; allowed: ",
    HTTPAnswers.response("{") => "answered what is no JSON; allowed: the address at which ",
    HTTPAnswers.response("[1]") => "answered what is not memscope's: ",
    HTTPAnswers.response('{"kind":"snapshot","schema":1}') => "answered what is not memscope's: Memscope::Ledger.from_h",
    HTTPAnswers.response("", status: "302 Found", type: "text/html", "Location" => "https://x/\e[2J") =>
      'sends on to "https://x/\\e[2J"; allowed: an address that answers',
    HTTPAnswers.response("", status: "401 Unauthorized") => "wants name and password: URL=http://NAME:PASSWORD@127.0.0.1",
    HTTPAnswers.response('{"error":"memscope is closed\u001b here."}', status: "403 Forbidden") =>
      "refuses this (403); its log says why: memscope is closed  here.",
    HTTPAnswers.response("no", status: "404 Not Found") => "has no such page (404); allowed: the address",
    HTTPAnswers.response("busy\xff\nnow", status: "503 Busy", type: "text/plain") => "answered 503: busy",
    HTTPAnswers.response('"odd"', status: "500 Oops") => "answered 500\n",
    "220 mail.example ESMTP\r\n" => "cannot be asked: wrong status line: ",
    "" => "cannot be asked: end of file reached\n"
  }.freeze

  def test_what_an_application_can_answer_instead
    servers = ANSWERS.keys.map { |answer| HTTPAnswers.new(answer) }
    urls = servers.map { |server| "http://127.0.0.1:#{server.port}" }

    reports(urls.map { |url| { "URL" => url } }).zip(urls, ANSWERS.values) do |said, url, sentence|
      assert_equal ["memscope:report: of #{url}\n", "memscope:report: URL: #{url}: #{sentence}"],
                   [said.lines.first, said.lines[1..].join[0, "memscope:report: URL: #{url}: #{sentence}".size]]
      assert_equal 3, said.lines.size, said
      assert_equal "exit 1\n", said.lines.last
    end
  ensure
    servers.each(&:close)
  end

  def test_an_application_that_is_not_there
    nobody = Socket.new(:INET, :STREAM).tap { |socket| socket.bind(Addrinfo.tcp("127.0.0.1", 0)) } # and does not listen
    port = nobody.local_address.ip_port
    ran = run_task(:report, env: { "URL" => "http://memory:hunter2@127.0.0.1:#{port}/m" })

    assert_match(%r{^memscope:report: URL: http://127.0.0.1:#{port}/m: cannot be asked: .*Connection refused}, ran.err)
    refute_includes ran.err, "hunter2"
  ensure
    nobody&.close
  end

  # Variables to what is said, without a trace.
  WRONG = {
    { "URL" => "http://memory:hunter 2@x" } => "URL: given what is no http:// or https:// address, allowed: the ",
    { "URL" => "file:///etc/passwd" } => "URL: given what is no http:// or https:// address, allowed: the ",
    { "URL" => "http:///memscope" } => "URL: given what is no http:// or https:// address, allowed: the ",
    { "URL" => "http://x", "PID" => "1" } => "PID and URL: given both, allowed: one of them",
    { "PID" => "self" } => 'PID: given "self", allowed: the number of a process, as `memscope ps` lists them',
    { "PID" => "0" } => 'PID: given "0", allowed: the number of a process',
    { "FORMAT" => "xml" } => 'FORMAT: given "xml", allowed: text, json'
  }.freeze

  def test_wrong_variables
    reports(WRONG.keys).zip(WRONG.values) do |said, sentence|
      assert_equal "memscope:report: #{sentence}", said[0, "memscope:report: #{sentence}".size]
      assert_equal "exit 1\n", said.lines[1..].join
      refute_includes said, "hunter"
    end
  end

  # The process of the script listens, and the task that it starts asks it.
  def test_a_process_that_listens
    needs("listener")
    out, ledger, dry = Dir.mktmpdir do |directory|
      [run_beside(:report, directory), run_beside(:report, directory, { "FORMAT" => "json" }).json,
       run_beside(:purge, directory, { "FORMAT" => "json", "LEVERS" => "gc", "DRY_RUN" => "1" }).json]
    end
    pid = out.err[/^memscope:report: of process (\d+)$/, 1]

    refute_nil pid, out
    assert_includes out.out, "pid #{pid}"
    assert_equal "ledger", ledger["kind"]
    assert_equal [true, ["gc"]], [dry["dry_run"], dry["levers"].map { |lever| lever["name"] }]
  end

  # Where the sockets are is what the application says.
  def test_the_environment_of_an_application_is_loaded_to_find_a_process
    ran = child(<<~RUBY, env: { "PID" => "1" })
      require "memscope/tasks"
      Rake::Task.define_task(:environment) { puts "loaded"; exit }
      Rake::Task["memscope:report"].invoke
    RUBY

    assert_equal "loaded\n", ran.out
  end

  def test_a_process_that_is_gone
    needs("listener")
    pid = Process.spawn("true").tap { |child| Process.wait(child) }

    assert_match(/^memscope:report: PID: .*\bno process #{pid}\b/, run_task(:report, env: { "PID" => pid.to_s }).err)
  end

  # As `memscope report --pid` does it.
  def test_a_process_that_does_not_listen
    silent = "process #{Process.pid} does not listen: start it with MEMSCOPE_LISTEN=1, or call Memscope.listen in it"
    ran = run_task(:report, env: { "PID" => Process.pid.to_s })

    assert_predicate ran, :success?, ran
    assert_includes ran.out, "pid #{Process.pid} seen from outside"
    assert_equal "memscope:report: #{silent}; this is the view from outside\n", ran.err.lines.last
    assert_equal "outside", run_task(:report, env: { "PID" => Process.pid.to_s, "FORMAT" => "json" }).json["kind"]
    ran = run_task(:doctor, env: { "PID" => Process.pid.to_s })

    assert_equal ["memscope:doctor: PID: #{silent}\n", 1, ""], [ran.err.lines.last, ran.status.exitstatus, ran.out]
  end

  def test_a_process_of_another_user
    needs("listener")
    skip "only root can become another user" unless Process.uid.zero?
    ran = run_task(:report, env: { "PID" => "1" }, before: "Process::UID.change_privilege(65_534);")

    assert_match(/^memscope:report: process 1 is another user's .*; this is the view from outside$/, ran.err)
    assert_includes ran.out, "pid 1 seen from outside"
  end

  def test_metrics
    needs("prometheus")

    assert_match(/^memscope_rss_bytes \d+/, run_task(:metrics).out)
  end

  def test_metrics_of_a_pid
    assert_includes run_task(:metrics, env: { "PID" => "1" }).err, "PID: given 1, allowed: URL="
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

  def run_beside(name, directory, env = {})
    task = "require \"memscope/tasks\"; Rake::Task[\"memscope:#{name}\"].invoke"
    options = ChildProcess::LOAD_PATH.map { |path| "-I#{path}" }
    child(<<~RUBY, requires: ["memscope"], env: { "MEMSCOPE_SOCKET_DIRECTORY" => directory, **env })
      Memscope.listen
      exit(system({ "PID" => Process.pid.to_s }, #{RbConfig.ruby.dump}, *#{options.inspect}, "-e", #{task.dump}))
    RUBY
  end

  # What memscope:report says with each of these environments, and how it ends.
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
