# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require_relative "../support/puma_server"
require_relative "../support/small_rails"

# memscope exercise against real applications: a Rails application that it loads itself, and a Puma cluster.
class ExerciseAcceptanceTest < MemscopeTest
  parallelize_me!

  EXECUTABLE = File.join(ChildProcess::ROOT, "exe/memscope")
  RAILS = <<~'RUBY'
    class PagesController < ActionController::Base
      def show = render(plain: "hello")
      def broken = raise("no database")
    end
    App.routes.append { %w[show broken].each { |action| get "/#{action}", to: "pages##{action}" } }
    App.initialize! unless App.initialized?
    run App
  RUBY

  # The number that derailed's perf:mem_over_time prints rises even for this application.
  def test_an_empty_rails_application
    skip_under_sanitizer
    Dir.mktmpdir do |directory|
      File.write(rackup = File.join(directory, "config.ru"), SmallRails.source + RAILS)
      hash, message = ChildProcess.run(<<~RUBY, bundler: true, requires: %w[memscope/exercise json]).json
        exercise = Memscope::Exercise.run(#{rackup.inspect}, path: "/show", requests: 200)
        message = (Memscope::Exercise.run(#{rackup.inspect}, path: "/broken") rescue $!.message)
        puts JSON.generate([exercise.to_h, message])
      RUBY
      found = Memscope::Exercise.from_h(hash)

      assert_equal [:steady, "production", :process], [found.verdict, found.environment, found.check.ran_in]
      assert_operator found.points.first.objects, :<, found.points[1].objects
      grown = found.points.last(6).each_cons(2).map { |one, later| later.objects - one.objects }

      assert_in_delta 0, grown.sort[2], 4, grown # Rails may load something in one of them
      assert_equal "GET /broken: status 500 RuntimeError: no database", message
    end
  end

  # How malloc memory of other processes is counted is tested in test/growth_check/listeners_test.rb.
  def test_a_cluster_of_puma
    skip_under_sanitizer
    PumaServer.run("workers 2; preload_app!", env: { "MEMSCOPE_HISTORY" => "0" }) do |server|
      ran = exercise("http://127.0.0.1:#{server.port}/leak", "--requests=100", "--threads=2", "--gc", "--json",
                     env: listening(server))

      assert_equal 1, ran.status.exitstatus, ran
      assert_leak(Memscope::Exercise.from_json(ran.out), server)
    end
  end

  # Without --gc there is no verdict anyway, but the status is that of a failure.
  def test_an_interrupt_without_gc
    PumaServer.run("") do |server|
      status, report = ChildProcess.run(<<~RUBY, requires: %w[memscope/cli json stringio], env: listening(server)).json
        out, err = Array.new(2) { StringIO.new }
        def err.tty? = true
        def err.print(text) = text.include?("20 of 100") && Process.kill(:INT, Process.pid) && sleep(0.1)
        arguments = %w[exercise http://127.0.0.1:#{server.port}/pid --requests=100 --json]
        puts JSON.generate([Memscope::CLI.run(arguments, out: out, err: err), out.string])
      RUBY

      assert_equal 74, status
      assert_match(/\Ainterrupted after \d\d requests/, Memscope::Exercise.from_json(report).reasons[:check])
    end
  end

  def assert_leak(leak, server)
    workers = server.workers.select(&:index)
    grown = leak.check.grown.find { |one| one.name == "Object" }

    assert_equal workers.map(&:pid).sort, leak.pids.sort
    assert_equal [:grows, :server, [10] * 5, "KEPT → Array → Object"],
                 [leak.verdict, leak.check.ran_in, grown.growth, grown.held_by.join(" → ")]
    # Between the least that both workers may have had, since an idle one gives memory back, and the most they ever had:
    # neither one of them nor all three processes.
    least, most = %w[VmRSS VmHWM].map { |name| workers.sum { |worker| status(worker.pid, name) } }

    assert_includes (least * 3 / 4)..most, leak.points.last.rss_bytes
  end

  private

  def listening(server) = { "MEMSCOPE_SOCKET_DIRECTORY" => server.directory }

  def exercise(*arguments, env: {})
    ChildProcess.run_command(*ChildProcess.ruby, EXECUTABLE, "exercise", *arguments, env: env)
  end

  # @return [Integer] bytes
  def status(pid, name) = Integer(File.read("/proc/#{pid}/status")[/^#{name}:\s+(\d+)/, 1]) * 1024
end
