# frozen_string_literal: true

require_relative "../../test_helper"

class HistoryOutsideTest < MemscopeTest
  # A child reads this process, through what a socket would answer, and keeps it in its own history.
  def test_another_process_is_judged_in_this_ones_history
    found = child_json(<<~RUBY, requires: %w[json memscope memscope_test])
      require "memscope/judge/history/outside"
      asked = Hash.new(0)
      outside = Memscope::History::Outside.new do |call, options|
        asked[[call, *options.keys]] += 1
        reading = Memscope.public_send(call, **options)
        call == :snapshot ? Memscope::Snapshot.from_h({ **reading.to_h, pid: 4711 }) : reading
      end
      now = Memscope::History::Sampler.now.to_i
      96.times { |step| Leaks.leak(30_000, 80, :here); outside.step(now + (step * 150)) }
      verdict = outside.verdict
      puts JSON.generate([verdict.pid, verdict.kind, verdict.evidence[:points], asked.keys.map { |key| key.join(" ") },
                          Memscope.history.points(:rss).size])
    RUBY
    pid, kind, points, asked, samples = found

    assert_equal [4711, "leak"], [pid, kind]
    assert_operator points, :>, 40
    assert_equal ["cgroup", "ledger", "ledger deep", "process_memory", "snapshot"], asked.sort
    assert_operator samples, :>, 20
  end

  def test_why_it_cannot_be_read
    said = child_json(<<~RUBY, requires: %w[json memscope])
      require "memscope/judge/history/outside"
      outside = Memscope::History::Outside.new { raise IOError, "it has ended" }
      puts JSON.generate([begin
        outside.step
      rescue IOError => e
        e.message
      end])
    RUBY

    assert_equal ["it has ended"], said
  end
end
