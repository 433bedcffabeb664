# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"

# A check as text: in 80 columns, with unknown numbers marked, and a sentence for each verdict.
class CheckPageTest < MemscopeTest
  GROWN = { layer: :objects, name: "Order", growth: [100, 90, 80, 60, 50], per_iteration: 1, places: [],
            held_by: %w[KEPT Array Order] }.freeze
  APPLICATION = { target: "config.ru", path: "/orders", environment: "production" }.freeze

  def test_each_verdict
    { steady: [{}, /^  Steady: nothing grows in the last 5 rounds of 100 requests\.$/],
      step: [{ rise: 200 }, /^  Step: objects rose in the last 5 rounds of 100 requests, but not in each\.$/],
      filling: [{ grown: [GROWN] }, /^  Filling: memory grows, but less and less, in each of the last 5 rounds of$/],
      leak: [{ grown: [{ **GROWN, growth: [100] * 5 }] },
             /^  Leak: memory grows in each of the last 5 rounds of 100 r/] }
      .each do |verdict, (given, sentence)|
      check = application(**given)

      assert_equal verdict, check.verdict
      assert_match sentence, check.to_s
    end
  end

  def test_a_block
    text = check(grown: [{ **GROWN, growth: [100] * 5 }], ran_in: :child).to_s(unicode: false)

    assert_equal <<~TEXT, text.gsub(/^  /, "").encode("UTF-8")
      Leak: memory grows in each of the last 5 rounds of 100 iterations, after 500
        iterations of warm-up, in a forked child:

      +1 Order per iteration (100, 100, 100, 100, 100)
        held by KEPT -> Array -> Order

      It is a leak, or a cache that is still filling: use warmup: 10000 to tell
        them apart. To allow it: ignore: ["Order"], or max: 1.

      unavailable or approximate:
        malloc_bytes: unreadable
    TEXT
    assert_match(/\A  Steady: nothing grows in 1,000 iterations, in this process\.$/, check.to_s)
  end

  def test_malloc_grows_without_counts
    { 0 => nil, 749 => nil, 800 => 8, 9_800 => 98 }.each do |bytes, expected|
      grown = application(malloc_rise: bytes)

      assert_equal [:steady, expected], [grown.verdict, grown.uncounted_bytes]
    end

    text = application(malloc_rise: 9_800).to_s

    assert_match(/one per request in .*,\s+but\s+malloc does, by 98 bytes:.* If\s+--requests=10000 shows/m, text)
  end

  def test_numbers
    text = application(grown: [GROWN]).to_s(unicode: false)

    assert_predicate text, :ascii_only?
    assert_match(/^ +1,000 +60,010 +2\.3 +- +30\.0$/, text)
    assert_match(/^  Each of the last 500 requests added \+0\.0 objects, slots \+1 B, malloc -, RSS$/, text)
    assert_match(/^    held by KEPT -> Array -> Order$/, text)
    assert_match(/still filling:\s+use\s+--requests=10000\s+to\s+tell\s+them\s+apart\./, text)
    assert_match(/^    malloc_bytes: unreadable$/, text)
    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 80
  end

  def test_nothing_was_requested
    early = application(points: [])

    assert_nil early.per_iteration(:objects)
    refute_match(/requests added/, early.to_s)
  end

  private

  def application(**given) = check(**APPLICATION, **given)

  def check(rise: 1, malloc_rise: nil, **given)
    body = { verdict: :steady, iterations: 100, runs: 5, max: 0, warmup_iterations: 500, total_iterations: 1000,
             ran_in: :process, grown: [], expired: [], points: points(rise, malloc_rise),
             reasons: { malloc_bytes: "unreadable" }, cost: Bodies.cost, **given }
    Memscope::Check.capture(body.update(grown: body[:grown].map(&:dup))).judged
  end

  # Some objects more in each round; malloc's bytes are not known unless they rise.
  def points(rise, malloc_rise)
    Array.new(11) do |round|
      { iterations: 100 * round, objects: 60_000 + (rise * round), slot_bytes: (60_000 + (2 * round)) * 40,
        malloc_bytes: malloc_rise && (round * malloc_rise), rss_bytes: 30 << 20 }
    end
  end
end
