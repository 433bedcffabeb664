# frozen_string_literal: true

require_relative "../../test_helper"
require "minitest/mock"
require "memscope/cli/cli"
require "memscope/cli/top_command"

class CLITopSourceTest < MemscopeTest
  Top = Memscope::CLI::Top
  # A process that answers what it is given, or raises it.
  Answering = Struct.new(:answers) do
    def call(name) = answers.fetch(name).then { |answer| answer.is_a?(Exception) ? raise(answer) : answer }
    def pid = Process.pid
  end

  def unreachable(why) = Memscope::Client::Unreachable.new("it is #{why}", why)

  def read(**answers) = Top::OneProcess.new(Answering.new(answers)).read

  def test_the_leaves_of_the_ledger_are_rows_the_largest_first
    ledger = Memscope.ledger
    frame = read(ledger: ledger, verdict: ArgumentError.new("no verdicts in its memscope"))
    (first, *rows) = frame[:rows]

    assert_equal [:rss, ledger.rss_bytes, "RSS"], first
    assert_equal(ledger.rss_bytes, rows.sum { |_path, bytes, _text| bytes })
    assert_equal(rows.map { |row| -row[1] }.sort, rows.map { |row| -row[1] })
    assert_includes rows.map(&:last).join("\n"), "Ruby heap / live slots"
    assert_nil frame[:verdict]
  end

  def test_a_process_that_is_gone_is_over
    assert_equal({ note: "it is gone. These are its last numbers", over: true }, read(ledger: unreachable(:gone)))
  end

  def test_a_process_that_does_not_listen_has_the_kernels_view
    frame = read(ledger: unreachable(:silent))

    assert_equal "pid #{Process.pid}: kernel's view only (process does not listen)", frame[:title]
    assert_equal %i[rss anonymous_bytes file_bytes shared_memory_bytes], frame[:rows].map(&:first)
    assert(frame[:rows].all? { |_name, bytes, _text| bytes.is_a?(Integer) })
  end

  def test_another_error_is_not_hidden
    assert_raises(Memscope::Client::Unreachable) { read(ledger: unreachable(:busy)) }
  end

  def test_all_processes
    process = Struct.new(:pid, :rss_bytes, :command).new(42, 5 << 20, "ruby app.rb")
    entries = [Struct.new(:process, :malloc_text).new(process, nil)]
    frames = [entries, entries * 2].map { |some| Memscope::Peers.stub(:entries, some) { Top::AllProcesses.new.read } }

    assert_equal(["1 Ruby process, by RSS", "2 Ruby processes, by RSS"], frames.map { |frame| frame[:title] })
    assert_equal [42, 5 << 20, "     42           ruby app.rb"], frames.first[:rows].first
  end
end
