# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "memscope/cli/cli"
require "minitest/mock"
require "stringio"

class CLIPsTest < MemscopeTest
  include Listening

  def test_processes
    skip_under_sanitizer
    asked = listening
    other = start(requires: [], preload: ChildProcess::ALLOCATORS[:jemalloc])
    lines = memscope("ps").lines(chomp: true)
    command = Regexp.escape(RbConfig.ruby)

    assert_match(/\A +pid +RSS +PSS +USS +malloc +listens +verdict  command\z/, lines[0])
    assert_match(/^ *#{asked.pid} +[\d,.]+ +[\d,.]+ +[\d,.]+ +glibc +yes +#{command}/, find(lines, asked))
    assert_match(/^ *#{other.pid} +[\d,.]+ +[\d,.]+ +[\d,.]+ +jemalloc\? +copy +#{command} .* -e \$stdout.*\send\z/,
                 find(lines, other))
    assert_equal "  copy: report, doctor, census, heap and dump --pid N read it in a copy;", lines[-2]
    assert_nil(lines.find { |line| line.start_with?(/ *#{Process.pid} /) })
  end

  # What grows comes first; then the largest.
  def test_the_order
    process = Struct.new(:pid, :rss_bytes, :pss_bytes, :uss_bytes, :command) { def listens? = true }
    verdicts = { 1 => "steady", 2 => "too early", 3 => "leak", 4 => nil, 5 => "filling", 6 => "leak" }
    entries = verdicts.map do |pid, verdict|
      Memscope::Peers::Entry.new(process.new(pid, 9 << 20, nil, nil, "puma: cluster worker"), :glibc, verdict)
    end
    lines = Memscope::Peers.stub(:entries, entries) { memscope("ps").lines(chomp: true) }

    assert_equal [3, 6, 5, 1, 2, 4], lines.drop(2).map(&:to_i)
    assert_equal "    3  9.0    ?    ?   glibc      yes       leak  puma: cluster worker", lines[2]
  end

  def test_a_process_whose_memscope_gives_no_verdicts
    skip_under_sanitizer
    asked = listening
    asked.tell("calls = Memscope.const_get(:Calls); kept = calls::CALLS.except(:verdict); " \
               "calls.send(:remove_const, :CALLS); calls.const_set(:CALLS, kept).size")
    asked.gets

    assert_match(/ glibc +yes +#{Regexp.escape(RbConfig.ruby[0, 10])}/, find(memscope("ps").lines(chomp: true), asked))
  end

  def test_a_process_that_does_not_answer_is_listed
    stopped = listening
    Process.kill(:STOP, stopped.pid)
    lines = memscope("ps", patience: 0.3).lines(chomp: true)

    assert_match(/ glibc\? +yes +no answer +#{Regexp.escape(RbConfig.ruby[0, 10])}/, find(lines, stopped))
  ensure
    Process.kill(:CONT, stopped.pid) if stopped
  end

  # Each of two clients waits until the other has been asked.
  def test_all_are_asked_at_once
    skip_under_sanitizer
    pids = [listening, listening].map(&:pid)
    asked = Queue.new
    build = Memscope::Client.method(:new)
    meet = lambda do |pid, **options|
      build.call(pid, **options).tap do |client|
        client.define_singleton_method(:call) do |name|
          asked << pid if name == :allocator
          sleep 0.01 until !pids.include?(pid) || asked.size >= pids.size
          super(name)
        end
      end
    end
    lines = Memscope::Client.stub(:new, meet) { memscope("ps").lines(chomp: true) }

    pids.each { |pid| assert_match(/^ *#{pid} .* glibc +yes /, lines.grep(/^ *#{pid} /).first) }
  end

  # Each file costs a Ruby that starts for one command.
  def test_few_files_are_loaded
    loaded = child_json(<<~RUBY, requires: %w[memscope/cli/cli stringio json])
      Memscope::CLI.run(["ps"], out: StringIO.new)
      puts JSON.generate($LOADED_FEATURES.grep(%r{/memscope/(?!memscope.so)}).map { |path| path[%r{/memscope/(.*)}, 1] })
    RUBY

    others = %r{\A(?:cli/(?!cli|command|help|ps_command)|judge/doctor|remote/(?:policy|workers)|web|profile|heap/[^l])}

    assert_empty loaded.grep(others)
    assert_operator loaded.size, :<=, 50
  end

  def test_json
    asked = listening
    processes = memscope("ps", "--json").lines.map { |line| Memscope::ExternalProcess.from_h(JSON.parse(line)) }

    assert_predicate processes.find { |process| process.pid == asked.pid }, :listens?
  end

  private

  def find(lines, process) = lines.find { |line| line.match?(/^ *#{process.pid} /) }

  # More patience than the command has: on a busy machine, no process may answer in 0.3 seconds.
  def memscope(*arguments, patience: 60)
    out = StringIO.new
    status = Memscope::Peers.stub(:patience, patience) do
      Memscope::CLI.run(arguments, out: out, err: StringIO.new)
    end

    assert_equal 0, status
    out.string
  end
end
