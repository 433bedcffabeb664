# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"

# An exercise as text: in 80 columns, with unknown numbers marked, and a sentence for each verdict.
class ExercisePageTest < MemscopeTest
  GROWN = { layer: :objects, name: "Order", growth: [100, 90, 80, 60, 50], per_iteration: 1, places: [],
            held_by: %w[KEPT Array Order] }.freeze

  def test_each_verdict
    { steady: [check, /^  Nothing grows in the last 5 rounds of 100 requests\.$/],
      filling: [check(GROWN), /^  Memory grows, but less and less, in each of the last 5 rounds of 100 requests:$/],
      grows: [check({ **GROWN, growth: [100] * 5 }), /^  Memory grows in each of the last 5 rounds of 100 req/],
      unknown: [nil, /^  No verdict\.$/] }.each do |verdict, (check, sentence)|
      exercise = exercise(check: check)

      assert_equal verdict, exercise.verdict
      assert_match sentence, exercise.to_s
    end
  end

  def test_malloc_grows_without_counts
    { 0 => nil, 749 => nil, 800 => 8, 9_800 => 98 }.each do |bytes, expected|
      grown = exercise(check: check, points: points.each_with_index { |one, i| one[:malloc_bytes] = i * bytes })

      assert_equal [:steady, expected], [grown.verdict, grown.uncounted_bytes]
      assert_equal expected.nil?, grown.to_s.include?("  Nothing grows in the last 5 rounds of 100 requests.")
    end

    text = exercise(check: check, points: points.each_with_index { |one, i| one[:malloc_bytes] = i * 9_800 }).to_s

    assert_match(/one per request in .*, but\s+malloc does, by 98 bytes:.* If\s+--requests=10000 shows/m, text)
  end

  def test_numbers
    text = exercise(check: check(GROWN)).to_s(unicode: false)

    assert_predicate text, :ascii_only?
    assert_match(/^ +1,000 +60,010 +2\.3 +- +30\.0$/, text)
    assert_match(/^  Each of the last 500 requests added \+0\.0 objects, slots \+1 B, malloc -, RSS$/, text)
    assert_match(/^    held by KEPT -> Array -> Order$/, text)
    assert_match(/still filling: --requests=10000\s+tells\./, text)
    assert_match(/^    malloc_bytes: unreadable$/, text)
    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 80
  end

  def test_nothing_was_requested
    early = exercise(check: nil, points: [])

    assert_nil early.per_request(:objects)
    refute_match(/requests added/, early.to_s)
  end

  private

  def exercise(**given)
    Memscope::Exercise.capture(
      { target: "config.ru", path: "/orders", threads: 1, environment: "production", pids: [4711], collected: true,
        points: points, reasons: { malloc_bytes: "unreadable" }, cost: Bodies.cost, **given }
    )
  end

  # One object more in each round; malloc's bytes are not known.
  def points
    Array.new(11) do |round|
      { requests: 100 * round, objects: 60_000 + round, slot_bytes: (60_000 + (2 * round)) * 40, malloc_bytes: nil,
        rss_bytes: 30 << 20 }
    end
  end

  def check(*grown)
    Memscope::GrowthCheck.capture(
      { iterations: 100, runs: 5, max: 0, warmup_iterations: 500, total_iterations: 1000, ran_in: :process,
        grown: grown.map(&:dup), expired: [], reasons: {}, cost: Bodies.cost }
    )
  end
end
