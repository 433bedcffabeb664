# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profile_cases"

# What grew between two profiles.
class ProfileGrowthTest < MemscopeTest
  include ProfileCases

  def test_what_grew
    earlier = Profiles.profile(Profiles.body([[%i[string put], 10, 0], [%i[deflate main], 9, 0], [%i[tree], 2, 0]]),
                               at: 1000)
    later = Profiles.profile(Profiles.body([[%i[tree], 2, 0], [%i[deflate main], 4, 0], [%i[string put], 10, 0],
                                            [%i[string put], 8, 1], [%i[zlib set], 1, 1]]), at: 61_000)
    difference = later.growth_since(earlier)

    assert_equal({ "/srv/app/models/cache.rb:9 in Cache#put" => 8, "/srv/app/main.rb:18 in <main>" => -5,
                   "#{RbConfig::CONFIG['rubylibdir']}/set.rb:400 in Set#add" => 1 }, held(difference, :line))
    assert_equal [4 * MEBIBYTE, 60.0, 21 * MEBIBYTE],
                 [difference.total_live_bytes, difference.seconds, difference.earlier_live_bytes]
    assert_equal [8 / 9.0, 1 / 9.0, nil], difference.by(:line).map(&:share)
  end

  def test_what_the_applications_lines_grew_by
    earlier = Profiles.profile(Profiles.body([[%i[zlib set main], 4], [%i[string put], 2]]), at: 1000)
    later = Profiles.profile(Profiles.body([[%i[zlib set main], 1], [%i[string put], 9]],
                                           application_root: "/srv/app", application_root_source: :rails), at: 2000)
    difference = later.growth_since(earlier)

    assert_equal({ "/srv/app/models/cache.rb:9 in Cache#put" => 7, "/srv/app/main.rb:18 in <main>" => -3 },
                 held(difference, :caller))
    assert_equal [["/srv/app/main.rb:18", -3 * MEBIBYTE]], difference.by(:line).last.callers
    assert_equal ["/srv/app", :rails], [difference.application_root, difference.application_root_source]
    assert_equal difference, Memscope::Profile.from_json(difference.to_json)
  end

  def test_before_and_after_of_each_line_and_tag
    tagged = ->(bytes) { { **Profiles.stack([0], bytes, 0), tag: "GET /orders" } }
    frames = [Profiles.ruby("run", "/srv/run.rb", 1), Profiles.ruby("other", "/srv/other.rb", 2)]
    earlier, later = [[4096, 8192], [12_288, 8192]].each_with_index.map do |(one, other), index|
      Profiles.profile(Profiles.whole(frames, [tagged[one], Profiles.stack([1], other, 0)], started_at: 0),
                       at: 1000 * (index + 1))
    end
    diff = later - earlier
    line, = diff.by(:line)

    assert_equal ["/srv/run.rb:1 in run", 4096, 12_288, 8192], [line.name, line.before, line.after, line.change]
    assert_equal([["GET /orders", 8192]], diff.by(:tag).map { |row| [row.name, row.change] })
    assert_equal 8192, diff[:live_bytes].change
    assert_equal later.growth_since(earlier).by(:line).first.error_bytes, line.error
    assert_equal diff, Memscope::Diff.from_json(diff.to_json)
    assert_match(/^ +\+8,192 B  live_bytes$/, diff.to_s)
  end

  # A gem or Bundler can be loaded between two profiles: the line of a gem then changes its library.
  def test_a_line_that_changed_its_library_has_not_grown
    profiles = ["application", "billing 2"].map do |library|
      frame = { **Profiles.ruby("Billing.run", "/srv/billing/run.rb", 3), library: library }
      Profiles.profile(Profiles.whole([frame], [Profiles.stack([0], 4096, 0)], started_at: 0), at: 1000)
    end

    assert_empty profiles.last.growth_since(profiles.first).stacks
  end

  def test_errors_of_a_difference_add_in_quadrature
    earlier = Profiles.profile(Profiles.body([[%i[string put], 10]]))
    later = Profiles.profile(Profiles.body([[%i[string put], 40]]))
    expected = Math.hypot(earlier.error_bytes, later.error_bytes)

    assert_in_delta expected, later.growth_since(earlier).error_bytes, 1
    assert_in_delta expected, (later - earlier).by(:line).first.error, 1
  end

  # Live bytes by everything that distinguishes an entry from others.
  def amounts(profile, grouping)
    profile.by(grouping).to_h { |entry| [[entry.path, entry.lineno || entry.name], entry.live_bytes] }
  end

  def test_differences_of_anything_sum
    SEEDS.each_cons(2) do |one, other|
      earlier = Profiles.profile(Profiles.random(one, names: Profiles::FRAMES.keys.shuffle(random: Random.new(one))))
      later = Profiles.profile(Profiles.random(other))
      difference = later.growth_since(earlier)

      assert_equal later.live_bytes - earlier.live_bytes, difference.total_live_bytes
      (GROUPINGS - [:stack]).each do |grouping|
        shrunk = amounts(earlier, grouping).transform_values(&:-@)

        assert_equal amounts(later, grouping).merge(shrunk) { |_key, *both| both.sum }, amounts(difference, grouping)
      end
      assert_equal difference, Memscope::Profile.from_json(difference.to_json)
    end
  end

  def test_a_profile_less_itself
    difference = shop.then { |profile| profile.growth_since(profile) }

    assert_empty difference.stacks
    assert_equal [0, 0], [difference.total_live_bytes, difference.error_bytes]
  end

  def test_profiles_that_cannot_be_subtracted
    rate = Profiles.profile(Profiles.shop(rate_bytes: 4096))
    backend = Profiles.profile(Profiles.shop(backend: :jemalloc))
    pid = Profiles.profile(Profiles.shop, pid: Process.pid + 1)

    refused("Memscope::Profile#-: rate_bytes: given 4096 in the earlier profile, allowed: 524288") { shop - rate }
    refused("Memscope::Profile#-: backend: given :jemalloc in the earlier") { shop - backend }
    refused("Memscope::Profile#-: pid: given #{Process.pid + 1}") { shop - pid }
    assert_raises(TypeError) { shop - 1 }
    assert_raises(TypeError) { shop - (shop - shop) }
    refused("Memscope::Profile#-: since: given nil in the earlier") { shop.growth_since(shop) - shop }
  end

  def test_profiling_that_began_anew_is_said
    restarted = shop(started_at: 5)

    assert_includes (shop - restarted).reasons.fetch(:started_at), "stopped and started again"
  end
end
