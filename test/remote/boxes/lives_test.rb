# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/black_boxes"

# What the boxes of one service say together. Each life is 20 minutes long, and its RSS known.
class LivesTest < MemscopeTest
  include BlackBoxes

  Lives = Memscope::Boxes::Lives
  HOUR = 3_600_000

  def test_a_release_against_the_one_before
    text = lives(life(6, "1a", 100), life(5, "1a", 110), life(4, "2b", 160), life(3, "2b", 180), own(170)).sentence

    assert_equal "Since release 2b, the floor after boot is 65.0 MiB higher (+- 7.6), by 3 and 2 lives.", text
  end

  # Means, and nothing but them, for one life each.
  def test_growth
    verdicts = [10, 30].map { |rate| Histories.leak(:native, 5).to_h.merge(bytes_per_hour: rate * MEBIBYTE) }
    text = lives(life(6, "1a", 100, verdict: verdicts[0]), own(90, verdict: verdicts[1])).sentence

    assert_equal "Since release 2b, the floor after boot is 10.0 MiB lower, the growth 30.0 MiB/h instead of 10.0, " \
                 "by 1 and 1 lives.", text
  end

  def test_different_limits_and_threads_are_said
    earlier = life(6, "1a", 100, threads: { count: 5, names: [] }, identity: { limit_bytes: 1 << 30 })
    text = lives(earlier, own(90, threads: { count: 16, names: [] })).sentence

    assert_includes text, "Their limits differ: 512.0 MiB to 1,024.0 MiB. Their numbers of threads differ: 5 to 16."
  end

  def test_nothing_is_said_of_one_release_or_without_a_settled_life
    assert_nil lives(life(6, "2b", 100), own(90)).sentence
    assert_nil lives(life(6, "1a", nil), own(90)).sentence
    assert_nil lives(life(6, nil, 100), own(90)).sentence
  end

  def test_a_history_goes_on_over_lives
    last = own(170)
    sibling = life(2, "2b", 500, identity: { index: 1 })
    joined = lives(life(6, "1a", 100), life(2, "2b", 160), sibling, last) do |one|
      one.before(Memscope::Postmortem::Box.new("/boxes/x", last).history)
    end
    sizes = joined.points(:rss).filter_map(&:last).uniq

    assert_equal([100, 160, 170], sizes.map { |bytes| bytes / MEBIBYTE })
    assert_in_delta NOW - (6 * HOUR), joined.started_at.to_i * 1000, 600_000
    assert_equal joined, Memscope::History.from_json(joined.to_json)
    joined[:rss].rings.each do |ring|
      assert_operator ring.min.size, :<=, Memscope::History::BUCKETS.fetch(ring.step_seconds)
    end
  end

  def test_deaths_and_releases
    told = lives(life(6, "1a", 100), life(5, "2b", 110, pid: 12), own(170))

    assert_equal [11, 12], told.deaths.map(&:pid)
    assert_equal ["2b"], told.releases.map(&:last)
  end

  def test_a_process_without_a_box
    planted({}) { |directory, source| assert_nil Lives.of(Memscope.snapshot, directory: directory, native: source) }
    assert_nil Lives.of(Memscope.snapshot, directory: "/nonexistent")
  end

  private

  def lives(*bodies)
    planted(bodies.each_with_index.to_h { |body, index| ["#{index}-1.box", body] }) do |directory, source|
      one = Lives.of(Memscope.snapshot, directory: directory, native: source)
      block_given? ? yield(one) : one.tap(&:sentence)
    end
  end

  # One that began so many hours ago.
  def life(hours, release, mebibytes, pid: 11, identity: {}, **slots)
    began = NOW - (hours * HOUR)
    given = { release: release, boot_id: "another", began_at: began, **identity }
    body(pid: pid, seen: began + 1_200_000, identity: given, history: (history(began, mebibytes) if mebibytes), **slots)
  end

  def own(mebibytes, **given)
    identity = { pid: Process.pid, started: CURRENT.started, boot_id: CURRENT.boot_id }
    life(1, "2b", mebibytes, identity: identity, **given)
  end

  def history(began, mebibytes)
    rings = Memscope::History::BUCKETS.map do |step, most|
      samples = Array.new([1200 / step, most].min, mebibytes * MEBIBYTE)
      { step_seconds: step, at: began / 600_000 * 600_000, min: samples, last: samples }
    end
    curve = { id: :rss, unit: :bytes, baseline: nil, rings: rings }
    { started_at: began, curves: [curve], events: [{ at: began, kind: 0 }] }
  end
end
