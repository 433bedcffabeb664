# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/histories"
require_relative "../../support/planted_history"
require "memscope/show/report"
require "memscope/show/report/history"

# A history as text. What is planted says what each number must be.
class ReportHistoryTest < MemscopeTest
  parallelize_me!

  ENDING = Time.utc(2026, 11, 26, 9, 10).freeze

  def history = PlantedHistory.week(now: ENDING)

  def text(**display) = history.to_s(unicode: true, **display)

  # The planted value, as `mebibytes` or `count` prints it.
  def planted(series, age) = PlantedHistory.value(series, age)

  def test_each_series_is_a_line_with_its_last_and_largest_sample_and_the_change
    line = text.lines.grep(/malloc/).first
    values = (0...1008).filter_map { |at| planted(:malloc, at * 600) }
    numbers = [values.last, values.last - values.first, values.max].map { |bytes| format("%.1f", bytes / 1_048_576.0) }

    assert_equal [numbers[0], "+#{numbers[1]}", numbers[2], "malloc"], line.split.first(4)
    assert_match(/\A +33 +\+33 +33  major GCs +[▁-█]+\n\z/, text.lines.grep(/major/).first)
    assert_includes text, "since 2026-11-19 09:20 UTC\n"
  end

  def test_a_leak_rises_and_what_does_not_change_is_flat
    sparks = text.lines.to_h { |line| [line.split[3], line[/[▁▂▃▄▅▆▇█]+$/]] }

    assert_equal "▁", sparks["malloc"][0]
    assert_equal sparks["malloc"].chars.sort, sparks["malloc"].chars
    assert_equal ["▁"], sparks["files"].chars.uniq
  end

  def test_what_has_not_changed_can_be_left_out
    lines = Memscope::Report::HistoryPage.new(history).table(:bytes, changed: true).to_a

    names = lines.drop(1).map { |line| line[/[A-Za-z]+( [a-z]+)?/] }

    assert_equal ["RSS", "malloc", "Ruby heap"], names
  end

  def test_every_width_and_plain_ascii
    [40, 60, 80, 132].each do |width|
      assert_operator text(width: width).lines.map { |line| line.chomp.size }.max, :<=, width
    end
    plain = history.to_s(unicode: false)

    assert_predicate plain, :ascii_only?
    assert_match(/malloc +_+\.+-+=+\++\*+$/, plain)
  end

  def test_without_a_history_it_says_how_to_start_one
    none = Memscope::History.capture({ running: false, started_at: nil, curves: [], events: [],
                                       reasons: { running: "History.start has not" }, cost: Memscope::Cost.of(:T1) })

    assert_includes none.to_s, "running: History.start has not"
    assert_empty Memscope::Report::HistoryPage.new(none).lines
  end

  def test_puts_prints_it
    assert_output(text(unicode: Encoding.default_external == Encoding::UTF_8)) { puts history }
  end
end

# A verdict as text, with the history that it judges.
class VerdictPageTest < MemscopeTest
  parallelize_me!

  def leak(...) = Histories.leak(...)

  def test_a_series_that_did_not_change_has_no_row_and_no_heading
    verdict, flat = Histories.plant(0.003) { { malloc: 100 } }

    assert_match(/Too early to tell/, verdict.to_s(history: flat))
    refute_match(/change/, verdict.to_s(history: flat))
  end

  # A process samples its RSS at once, the parts of it a minute later.
  def test_changes_begin_when_all_parts_are_known
    verdict, history = leak(:native, by: :plant, late: 2.5)
    changes = verdict.to_s(history: history).scan(/^ +[\d.]+ +\+([\d.]+) +[\d.]+  (RSS|malloc) {3}/)

    assert_equal %w[RSS malloc], changes.map(&:last).sort
    assert_in_delta(*changes.map { |change,| Float(change) }, 12)
    assert_operator Float(changes[0][0]), :<, 130
  end

  def test_the_page
    verdict, history = leak(:native, by: :plant)
    page = verdict.to_s(history: history, unicode: false)

    assert_match(/^  Leak of native memory: /, page)
    assert_match(/^  60 values, one per 5 min, confidence \d+ %\.$/, page)
    assert_match(/^ +319\.\d  \+199\.\d  319\.\d  malloc +_[-_.=+*#@]+$/, page)
    refute_match(/stacks/, page)
    assert_match(/^    memscope profile --pid \d+ --backend=imports/, page)
    assert(page.lines.all? { |line| line.chomp.length <= 80 && line.ascii_only? })
  end
end
