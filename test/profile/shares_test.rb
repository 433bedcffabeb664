# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profiles"

# Errors of profiles of objects, by windows.
class SharesTest < MemscopeTest
  # Stacks of one line, given as [samples, [window, allocations, objects, bytes], …].
  def profile(*stacks, windows:, allocations:, share: 0.0, **fields)
    stacks = stacks.map.with_index do |(samples, *shares), generation|
      Profiles.stack([0], shares.sum(&:last), generation, samples: samples, shares: shares, class_name: "Order",
                                                          live_objects: shares.sum { |share| share[2] },
                                                          error_objects: 1, **fields)
    end
    body = Profiles.whole([Profiles::FRAMES.fetch(:put)], stacks, backend: :objects, rate_bytes: nil, windows: windows,
                                                                  allocations: allocations, coverage: nil,
                                                                  equal_windows: windows.to_f, windows_share: share,
                                                                  live_objects: stacks.sum { _1[:live_objects] })
    Memscope::Profile.capture(body)
  end

  # 10 equal windows with 5 samples of 100 each: nothing varies between windows, so the error is that of 50 independent
  # samples, and of one more.
  def test_what_is_spread_evenly_has_the_error_of_independent_samples
    even = profile([50, *(1..10).map { |window| [window, 40_000, 500, 20_000] }], windows: 10, allocations: 400_000)
    expected = 5000 * Math.sqrt((1 - (50 / 5000.0)) / 50 * (51 / 50.0))

    assert_in_delta expected, even.error_objects, 1
    assert_in_delta expected * 40, even.error_bytes, 40
  end

  # One object of 300 KB, which a sample of 50 stands for a hundred times, among strings of 40 bytes.
  def test_one_large_object_among_small_ones_is_uncertain
    even = profile([50, *(1..9).map { |window| [window, 40_000, 500, 20_000] }, [10, 40_000, 500, 30_019_600]],
                   windows: 10, allocations: 400_000, share: 1.0, spread_bytes: 30_000_000)

    assert_in_delta 30_000_000, even.error_bytes, 300_000
    assert_equal even.error_bytes, even.by(:line).first.error_bytes
    assert_operator even.error_objects, :<, 750
  end

  # All in one of 10 windows: by the jackknife, the error is about as large as the estimate.
  def test_what_comes_in_one_window_is_as_uncertain_as_it_is_large
    clustered = profile([50, [3, 40_000, 5000, 200_000]], windows: 10, allocations: 400_000)
    variance = ((10 / 9.0)**4) * ((5000**2) - ((5000**2) / 10.0)) * (51 / 50.0)

    assert_in_delta Math.sqrt(variance), clustered.error_objects, 1
    assert_operator clustered.error_objects, :>, 5000
  end

  def test_what_is_watched_throughout_is_certain_but_for_the_interval
    watched = profile([50, [3, 20_000, 5000, 200_000]], windows: 10, allocations: 200_000, share: 1.0)

    assert_in_delta 5000 * Math.sqrt((1 - (50 / 5000.0)) / 50 * (51 / 50.0)), watched.error_objects, 1
  end

  # The windows of a line's stacks are added before they are compared: generations come in one window after another.
  def test_stacks_of_a_line_are_not_independent
    generations = (1..10).map { |window| [5, [window, 40_000, 500, 20_000]] }
    apart = profile(*generations, windows: 10, allocations: 400_000)
    line = apart.by(:line).first

    assert_in_delta 5000 / Math.sqrt(50), line.error_objects, 20
    assert_equal apart.error_objects, line.error_objects
    assert_equal 1, apart.stacks.first.shares.size
  end

  def test_what_is_in_both_profiles_adds_no_error_to_their_difference
    held = (1..10).map { |window| [window, 40_000, 500 * window, 20_000 * window] }
    earlier = profile([50, *held], windows: 10, allocations: 400_000, spread_bytes: 3000)
    later = profile([52, *held, [11, 40_000, 200, 8000]], windows: 11, allocations: 440_000, spread_bytes: 5000)
    growth = later.growth_since(earlier)

    assert_equal 200, growth.live_objects
    assert_equal [[11, 40_000, 200, 8000]], growth.stacks.first.shares
    assert_equal 4000, growth.stacks.first.spread_bytes
    assert_operator growth.error_objects, :<, 350
    assert_operator earlier.error_objects, :>, 700
  end

  # 50 samples that stand for 100 objects each are gone, 50 that stand for 120 each are new.
  def test_samples_that_replace_as_many_others_are_not_certain
    gone, new = [[1..10, 500], [11..20, 600]].map do |windows, objects|
      windows.map { |window| [window, 40_000, objects, 40 * objects] }
    end
    earlier = profile([50, *gone], windows: 10, allocations: 400_000)
    growth = profile([50, *new], windows: 20, allocations: 800_000).growth_since(earlier)
    spread = Math.sqrt(10 * ((600**2) + (500**2)))

    assert_equal [1000, 0], [growth.live_objects, growth.samples]
    assert_operator growth.error_objects, :>, spread
    assert_operator growth.error_bytes, :>, 40 * spread
    assert_equal growth.error_objects, growth.by(:line).first.error_objects
  end

  def test_both_come_back_from_json
    earlier = profile([50, [3, 40_000, 5000, 200_000]], windows: 10, allocations: 400_000)
    later = profile([60, [3, 40_000, 6000, 240_000]], windows: 10, allocations: 400_000)

    assert_equal earlier, Memscope::Profile.from_json(earlier.to_json)
    growth = later.growth_since(earlier)

    assert_equal growth, Memscope::Profile.from_json(growth.to_json)
    assert_equal later - earlier, Memscope::Diff.from_json((later - earlier).to_json)
  end

  def test_shares_that_are_none_are_refused
    hash = profile([50, [3, 40_000, 5000, 200_000]], windows: 10, allocations: 400_000).to_h
    hash[:stacks][0][:shares] = [[1, 2, "3", 4]]
    error = assert_raises(ArgumentError) { Memscope::Profile.from_h(hash) }

    assert_match(/stacks\[0\]\.shares/, error.message)
  end

  def test_groupings_are_those_of_objects
    objects = profile([50, [3, 40_000, 5000, 200_000]], windows: 10, allocations: 400_000)

    assert_equal ["Order"], objects.by(:class).map(&:name)
    assert_raises(ArgumentError) { objects.by(:native) }
    assert_raises(ArgumentError) { Memscope::Profile.capture(Profiles.shop).by(:class) }
  end
end
