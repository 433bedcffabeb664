# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/histories"

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
