# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/planted_history"
require "memscope/show/report"
require "memscope/show/report/history"
require "memscope/show/report/markdown"

# A history as text, and its curve. What is planted says what each number must be.
class ReportHistoryTest < MemscopeTest
  parallelize_me!

  ENDING = Time.utc(2026, 11, 26, 9, 10).freeze

  def history = PlantedHistory.week(now: ENDING)

  def text(**display) = history.to_s(unicode: true, **display)

  # The planted value, as `mebibytes` or `count` prints it.
  def planted(series, age) = PlantedHistory.value(series, age)

  def test_each_series_is_a_line_with_its_first_and_last_sample_and_the_change
    line = text.lines.grep(/malloc/).first
    first, last = [0, (7 * 86_400) - 600].map { |age| planted(:malloc, age) / 1_048_576.0 }
    numbers = [first, last, last - first].map { |number| format("%.1f", number) }

    assert_equal ["malloc", *numbers.first(2), "+#{numbers.last}"], line.split.first(4)
    assert_match(/\A  major GCs +0 +33 +\+33  [▁-█ ]+\n\z/, text.lines.grep(/major/).first)
  end

  def test_a_leak_rises_and_what_does_not_change_is_flat
    sparks = text.lines.to_h { |line| [line.split.first, line[/[▁▂▃▄▅▆▇█ ]+$/]&.strip] }

    assert_equal "▁", sparks["malloc"][0]
    assert_equal sparks["malloc"].delete(" ").chars.sort, sparks["malloc"].delete(" ").chars
    assert_equal ["▁"], sparks["files"].delete(" ").chars.uniq
  end

  def test_the_curve_names_the_extremes_and_their_times
    spark, words = Memscope::Report::HistoryPage.new(history).curve
    values = (0...1008).to_h { |at| [at * 600, planted(:rss, at * 600)] }.compact
    extremes = [values.min_by(&:last), values.max_by(&:last)].map do |age, bytes|
      "#{format('%.1f', bytes / 1_048_576.0)} MiB at #{(ENDING + 600 - (7 * 86_400) + age).strftime('%-d %b %H:%M')}"
    end

    assert_match(/\A  RSS  [▁-█ ]+  19 Nov 09:20 to 26 Nov 09:10 UTC\z/, spark)
    assert_equal "       least #{extremes[0]} · most #{extremes[1]}", words
  end

  def test_every_width_and_plain_ascii
    [40, 60, 80, 132].each do |width|
      assert_operator text(width: width).lines.map { |line| line.chomp.size }.max, :<=, width
    end
    plain = history.to_s(unicode: false)

    assert_predicate plain, :ascii_only?
    assert_match(/malloc .* _+\.+-+=+\++\*+[#@]+$/, plain)
  end

  def test_without_a_history_it_says_how_to_start_one
    none = Memscope::History.capture({ running: false, started_at: nil, curves: [], events: [],
                                       reasons: { running: "History.start has not" }, cost: Memscope::Cost.of(:T1) })

    assert_includes none.to_s, "running: History.start has not"
    assert_empty Memscope::Report::HistoryPage.new(none).curve
  end

  def test_puts_prints_it
    assert_output(text(unicode: Encoding.default_external == Encoding::UTF_8)) { puts history }
  end
end
