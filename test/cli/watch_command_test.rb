# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "memscope/cli/cli"
require "memscope/cli/top_command"
require "minitest/mock"
require "stringio"

class CLIWatchTest < MemscopeTest
  include Listening

  # Four hours of samples, of a process that leaks in C.
  LEAK = <<~RUBY
    Memscope.const_get(:Native).open_history
    sampler = Memscope::History::Sampler.new
    now = Memscope::History::Sampler.now.to_i
    96.times { |step| Leaks.leak(30_000, 80, :here); sampler.step(now + step * 150) }
  RUBY

  def test_a_leak
    skip_under_sanitizer
    process = listening(LEAK, requires: %w[memscope memscope_test])
    lives = Struct.new(:sentence).new("Since release 2b, the floor is higher.")
    out, status = Memscope::Boxes::Lives.stub(:of, ->(reading) { lives if reading.pid == process.pid }) do
      memscope("watch", "--pid", process.pid.to_s)
    end

    assert_equal 1, status
    assert_includes out, "\n\n  Since release 2b, the floor is higher.\n"
    assert_match(%r{^  Leak of native memory: \+\d+\.\d MiB/h}, out)
    assert_match(/^ +\d+\.\d +\+\d+\.\d +\d+\.\d  malloc +\S+$/, out)
    assert_includes out, "memscope profile --pid #{process.pid} --backend=imports"
    assert_operator out.lines.map { |line| line.chomp.length }.max, :<=, 80
    json, status = memscope("watch", "--pid", process.pid.to_s, "--json")

    assert_equal [1, :leak], [status, Memscope::Verdict.from_json(json).kind]
    listed = -> { memscope("ps").first[/^ *#{process.pid} .*/] }
    line = listed.call
    line = listed.call while line.include?("no answer") # in the third of a second that ps waits

    assert_match(/ yes +leak /, line)
    assert_match(/\ALeak of native memory/, top(process)[:verdict])
  end

  def test_a_process_without_a_history
    process = listening
    json, status = memscope("watch", "--pid", process.pid.to_s, "--json")
    verdict = Memscope::Verdict.from_json(json)

    assert_equal [0, :too_early], [status, verdict.kind]
    assert_match(/a history needs Memscope::History.start or MEMSCOPE_HISTORY=1/, verdict.reasons[:running])
    assert_nil top(process)[:verdict]
  end

  # It is read from here until somebody ends that.
  def test_reading_a_process_without_a_history
    process = listening("held = 'x' * 30_000_000")
    command = [RbConfig.ruby, "-W0", "-Ilib", "exe/memscope", "watch", "--pid", process.pid.to_s]
    watch = IO.popen({ "MEMSCOPE_SOCKET_DIRECTORY" => sockets }, command, err: %i[child out])
    said = [watch.gets, watch.gets]
    Process.kill(:INT, watch.pid)
    text = watch.read

    assert_match(/the process keeps no history, so memscope reads it/, said.first)
    assert_match(/watch: Too early to tell: .* needs at least \d+ minutes more/, said.last)
    assert_match(/· pid #{process.pid}$.*^  Too early to tell: /m, text)
    assert_predicate Process.wait2(watch.pid).last, :success?
  end

  def test_a_file_gets_every_verdict
    process = listening
    file = File.join(@directory, "verdicts.json")
    watch = Thread.new { memscope("watch", "--pid", process.pid.to_s, "--every=0.05", "--json", "--output", file) }
    sleep 0.05 until !watch.alive? || (File.exist?(file) && File.foreach(file).count >= 3)
    process.stop
    out, status = watch.value

    assert_match(/\Amemscope watch: (there is no )?process #{process.pid}/, out)
    assert_equal 74, status
    assert_equal([process.pid], File.readlines(file).map { |line| Memscope::Verdict.from_json(line).pid }.uniq)
  end

  def test_no_process
    assert_equal ["memscope watch: no process given; allowed: --pid N, --socket PATH\n", 64], memscope("watch")
  end

  private

  def top(process) = in_sockets { Memscope::CLI::Top::OneProcess.new(Memscope::Client.new(process.pid)).read }

  # What it printed, and its exit status.
  def memscope(*arguments)
    io = StringIO.new
    status = in_sockets { Memscope::CLI.run(arguments, out: io, err: io) }
    [io.string, status]
  end

  def in_sockets
    before = ENV.fetch("MEMSCOPE_SOCKET_DIRECTORY", nil)
    ENV["MEMSCOPE_SOCKET_DIRECTORY"] = sockets
    yield
  ensure
    ENV["MEMSCOPE_SOCKET_DIRECTORY"] = before
  end
end
