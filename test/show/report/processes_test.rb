# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/histories"
require "memscope/remote/workers"
require "memscope/show/report"

# Processes as text: those of a server, one that is seen from outside, and a process's mappings.
class ProcessesPageTest < MemscopeTest
  MEBIBYTE = 1_048_576

  def worker(**fields)
    Memscope::Worker.capture({ index: 0, pid: Process.pid, role: :worker, samples: 1, reasons: {}, **fields })
  end

  def workers(*all) = Memscope::Workers.of(all, since: 0)

  def test_the_table_fits_the_page
    large = { rss_bytes: 9_999 * MEBIBYTE, pss_bytes: 9_999 * MEBIBYTE, uss_bytes: 9_999 * MEBIBYTE,
              shared_bytes: 9_999 * MEBIBYTE, unshared_since_fork_bytes: 9_999 * MEBIBYTE, pid: 4_194_304,
              booted_at: 0, at: 0, samples: 9, phase: 0,
              rows: { malloc: 9_999 * MEBIBYTE, ruby_heap: 999 * MEBIBYTE, files: 99, ruby_internal: 9, jit: 7,
                      stacks: 1, memscope: 0 } }
    read = workers(worker(**large, role: :master, index: nil, phase: nil), worker(**large, index: 12),
                   worker(**large, index: 12, phase: 1, reasons: { at: "no report for 99 s" }))
    text = read.to_s

    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 80
    assert_match(/^ *all +29,997\.0 +29,997\.0$/, text)
    assert_match(/others +\S* ?RSS$/, text)
    assert_match(/^  worker 12: at: no report for 99 s$/, text)
    assert_includes text.gsub(/\s+/, " "), "the oldest of which is that of master, from 00:00:00 UTC."
    assert_predicate Memscope::Report.render(read, unicode: false), :ascii_only?
  end

  # The page shows the table of the text.
  def test_a_column_is_in_text_and_metrics
    head = workers(worker).to_s.lines.find { |line| line.include?(" pid ") && line.include?("MiB") }
    names = Memscope::Metrics::DEFINITIONS.map(&:name)

    assert_equal Memscope::Worker::COLUMNS.values, head.split[2...-1]
    Memscope::Worker::COLUMNS.keys.drop(1).each { |field| assert_includes names, "memscope_worker_#{field}" }
  end

  def test_the_verdict_of_each_worker
    leak = Histories.judge(5) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour } }
    read = workers(worker(verdict: leak), worker(index: 1))
    text = read.to_s

    early = Histories.judge(0.1) { |hour| { malloc: 900 * hour, malloc_in_use: 900 * hour } }
    young = workers(worker(verdict: early)).to_s

    assert_match(/^ *worker 0 .* too early$/, young)
    assert_match(/^  worker 0: Too early to tell: .* needs at least 54 minutes more/, young.gsub(/\n {4}/, " "))
    refute_match(%r{MiB/h}, young)
    assert_match(/ up +verdict$/, text)
    assert_match(/^ *worker 0 .* leak$/, text)
    assert_includes text.gsub(/\s+/, " "), "worker 0: #{leak.sentence}"
    assert_equal read, Memscope::Workers.from_json(read.to_json)
    refute_match(/verdict/, workers(worker).to_s)
  end

  def test_mappings_fit_the_page
    skip_under_sanitizer
    text = Memscope.mappings.to_s

    assert_match(%r{^ +[\d,]+ +[\d,]+ +rw-p  \h+  malloc/main_heap  \[heap\]$}, text)
    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 80
  end

  def test_the_text_says_that_it_is_from_outside
    text = Memscope::ExternalProcess.read(Process.pid).to_s

    assert_match(/\Amemscope \S+ . pid \d+ seen from outside . uid \d+$/, text)
    assert_includes text.gsub(/\s+/, " "), "This is the kernel's view only, because the process does not listen."
    assert_includes text.gsub(/\s+/, " "), "For its memory in malloc and in Ruby, run memscope attach --pid " \
                                           "#{Process.pid}, or let it require \"memscope\", and start it with " \
                                           "MEMSCOPE_LISTEN=1."
    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 80
  end

  # As after a question to a process that is stopped.
  def test_the_text_of_one_that_listens_does_not_send_back_to_the_same_question
    body = JSON.parse(Memscope::ExternalProcess.read(Process.pid).to_json)
    text = Memscope::ExternalProcess.from_h({ **body, "listens" => true }).to_s

    assert_includes text.gsub(/\s+/, " "), "The process listens: once it answers, memscope report --pid " \
                                           "#{Process.pid} shows its own report."
  end
end
