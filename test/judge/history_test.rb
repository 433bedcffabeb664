# frozen_string_literal: true

require_relative "../test_helper"

# What a history answers. test/history/sampler_test.rb is about what fills it, test/engine/trend/rings_test.c about what
# is kept.
class HistoryTest < MemscopeTest
  parallelize_me!

  START = Time.utc(2026, 11, 21, 2).freeze

  # A ring with this step and its samples from START on; a bucket with several samples is an Array.
  def ring(step, buckets)
    { step_seconds: step, at: START.strftime(Memscope::Field::TIME),
      min: buckets.map { |bucket| Array(bucket).min }, last: buckets.map { |bucket| Array(bucket).last } }
  end

  def curve(id, fine, spacing: 10)
    rings = [10, 60, 600].map { |step| ring(step, fine.each_slice(step / 10).map { |part| part.flatten.compact }) }
    { id: id, unit: "bytes", spacing_seconds: spacing, baseline: nil, rings: [ring(10, fine), *rings.drop(1)] }
  end

  def history(*curves)
    Memscope::History.from_h(
      { schema: 1, kind: "history", memscope: "0.1.0", ruby: "3.1.2", pid: 1, at: START.strftime(Memscope::Field::TIME),
        running: true, started_at: START.strftime(Memscope::Field::TIME), curves: curves, events: [], reasons: {},
        cost: { tier: "T1", wall_us: 1, gvl_us: 1, scratch_bytes: 0 } }
    )
  end

  def test_points_have_the_least_and_the_last_sample_of_a_bucket_or_none
    points = history(curve("rss", [[3, 1, 2], nil, 5])).points(:rss)
    expected = [[START, 1, 2], [START + 10, nil, nil], [START + 20, 5, 5]]

    assert_equal(expected, points.map { |point| [point.at, point.min, point.last] })
    assert points.all?(&:frozen?)
  end

  def test_points_since_a_time_begin_with_its_bucket
    history = history(curve("rss", (1..12).to_a))

    assert_equal [11, 12], history.points(:rss, since: START + 105).map(&:min)
    assert_equal [12], history.points(:rss, since: (START + 110).to_i).map(&:min)
    assert_empty history.points(:rss, since: START + 120)
    assert_equal 12, history.points(:rss, since: START - 3600, step: 10).size
  end

  def test_the_step_is_the_finest_with_a_sample_in_each_bucket
    history = history(curve("rss", (1..12).to_a), curve("pss", (1..12).map { |at| at if at % 6 == 1 }, spacing: 60),
                      curve("malloc_in_use", [1], spacing: 900))

    assert_equal([12, 2, 1], %i[rss pss malloc_in_use].map { |name| history.points(name).size })
    assert_equal [1, 7], history.points(:rss, step: 60).map(&:min)
    assert_equal(10, history.points(:pss, step: 10).count { |point| point.min.nil? })
  end

  # The fine ring has given up what is older than START + 300.
  def test_the_step_reaches_back_far_enough
    body = history(curve("rss", (1..60).to_a)).to_h
    fine = body[:curves].first[:rings].first
    fine.update(at: (START + 300).strftime(Memscope::Field::TIME), min: fine[:min].last(30), last: fine[:last].last(30))
    history = Memscope::History.from_h(body)

    assert_equal 10, history.points(:rss).size
    assert_equal 30, history.points(:rss, since: START + 300).size
  end

  def test_a_ring_from_elsewhere_has_both_samples_of_each_bucket
    body = history(curve("rss", [1, nil, 3])).to_h
    as_many = "a sample for each of min, which has 3 items"
    counts = "an Array, each item an Integer of 0 or more, or nil"
    { [1, nil] => as_many, [1, 2, 3] => as_many, [1, nil, "3"] => counts }.each do |last, allowed|
      body[:curves].first[:rings].first[:last] = last

      assert_equal "Memscope::History.from_h: curves[0].rings[0].last: given #{last}, allowed: #{allowed}",
                   assert_raises(ArgumentError) { Memscope::History.from_h(body) }.message
    end
  end

  # The rings have room for each series of the engine's table, and a row of the ledger without a series would be lost.
  def test_the_rows_of_a_ledger_are_series
    table = File.join(ChildProcess::ROOT, "ext/memscope/engine/ledger/ledger_rows.def")
    rows = File.read(table).scan(/^ROW\(\w+, (\w+), top,/).flatten.map(&:to_sym)

    assert_equal rows, Memscope::History::ROWS
    assert_equal rows, Memscope::History::SERIES.keys.last(rows.size)
    assert_equal [:bytes], Memscope::History::SERIES.values_at(*rows).uniq
  end

  def test_wrong_arguments_are_named
    history = history(curve("rss", [1]))

    assert_equal "Memscope::History has no :rrs; allowed: :rss",
                 assert_raises(KeyError) { history.points(:rrs) }.message
    assert_equal "Memscope::History: since: given \"now\", allowed: nil, a Time, seconds since 1970",
                 assert_raises(ArgumentError) { history.points(:rss, since: "now") }.message
    assert_equal "Memscope::History: step: given 30, allowed: nil, 10, 60, 600",
                 assert_raises(ArgumentError) { history.points(:rss, step: 30) }.message
    assert_raises(ArgumentError) { history.points(:rss, since: Float::NAN) }
  end

  def test_json_both_ways
    body = child_json(<<~RUBY, requires: ["json"])
      Memscope::History.start
      sleep 0.01 until Memscope.history.series.any?
      history = Memscope.history
      puts JSON.generate([history.to_h, history == Memscope::History.from_json(history.to_json), history.frozen?])
    RUBY

    assert_equal [true, true], body.drop(1)
    history = Memscope::History.from_h(body.first)

    assert_equal Memscope::History::SERIES.keys.first(6), history.series.first(6)
    assert_equal %i[started], history.events.map(&:kind)
    assert_predicate history, :running?
    assert_in_delta Time.now, history.started_at, 60
    assert_in_delta Time.now, history.points(:rss).last.at, 60
  end

  # The clock is injected: the samples of a week, one more week, and what both take.
  def test_a_week_fits_into_the_row_of_memscope
    skip_under_sanitizer
    rows, points, cost = child_json(<<~RUBY, requires: ["json"])
      native = Memscope.const_get(:Native)
      native.open_history
      add = ->(at) { native.add_to_history(Memscope::History::SERIES.transform_values { at << 10 }, at) }
      rows = [Memscope.ledger[:memscope].bytes]
      2.times do |week|
        (0...604_800).step(10) { |at| add.call(week * 604_800 + at) }
        rows << Memscope.ledger[:memscope].bytes
      end
      history = Memscope.history
      points = [10, 60, 600].map { |step| history.points(:rss, step: step).map(&:last) }
      puts JSON.generate([rows, points, history.cost.gvl_us])
    RUBY

    assert_in_delta 367 << 10, rows[1] - rows[0], 40 << 10
    assert_in_delta rows[1], rows[2], 32 << 10
    assert_equal [360, 720, 1008], points.map(&:size)
    last = (2 * 604_800) - 10

    [10, 60, 600].zip(points) do |step, list|
      assert_equal (0...list.size).map { |back| (last - (back * step)) << 10 }.reverse, list
    end
    assert_operator cost, :>, 0
  end

  def test_without_a_history
    history = Memscope::History.from_h(child_json("puts Memscope.history.to_json", requires: ["json"]))

    assert_empty history.series
    refute_predicate history, :running?
    assert_match(/History\.start/, history.reasons[:running])
  end
end
