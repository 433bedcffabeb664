# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "memscope/cli"
require "stringio"

class CLIPsTest < MemscopeTest
  include Listening

  def test_processes
    skip_under_sanitizer
    asked = listening
    other = start(requires: [], preload: ChildProcess::ALLOCATORS[:jemalloc])
    lines = memscope("ps").lines(chomp: true)
    command = Regexp.escape(RbConfig.ruby[0, 10]) # cut at the edge

    assert_match(/\A +pid +uid +RSS +PSS +USS +malloc +listens +verdict  command\z/, lines[0])
    assert_match(/^ *#{asked.pid} +\d+ +[\d,.]+ +[\d,.]+ +[\d,.]+ +glibc +yes +#{command}/, find(lines, asked))
    assert_match(/^ *#{other.pid} +\d+ +[\d,.]+ +[\d,.]+ +[\d,.]+ +jemalloc\? +no +#{command}/, find(lines, other))
    assert_nil(lines.find { |line| line.start_with?(/ *#{Process.pid} /) })
    assert_operator lines.map(&:length).max, :<=, 80
  end

  def test_a_process_whose_memscope_gives_no_verdicts
    skip_under_sanitizer
    asked = listening
    asked.tell("calls = Memscope.const_get(:Calls); kept = calls::CALLS.except(:verdict); " \
               "calls.send(:remove_const, :CALLS); calls.const_set(:CALLS, kept).size")
    asked.gets

    assert_match(/ glibc +yes +#{Regexp.escape(RbConfig.ruby[0, 10])}/, find(memscope("ps").lines(chomp: true), asked))
  end

  def test_json
    asked = listening
    processes = memscope("ps", "--json").lines.map { |line| Memscope::ExternalProcess.from_h(JSON.parse(line)) }

    assert_predicate processes.find { |process| process.pid == asked.pid }, :listens?
  end

  private

  def find(lines, process) = lines.find { |line| line.match?(/^ *#{process.pid} /) }

  def memscope(*arguments)
    out = StringIO.new
    status = Memscope::CLI.run(arguments, out: out, err: StringIO.new)

    assert_equal 0, status
    out.string
  end
end
