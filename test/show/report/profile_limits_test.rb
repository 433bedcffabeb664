# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/profiles"
require_relative "../../support/printed"
require "memscope/show/report"

# What a profile says of its own limits.
class ProfileLimitsTest < MemscopeTest
  include Printed

  def unwrapped(...) = text(...).gsub(/\s+/, " ")

  def grown(**given) = unwrapped(Profiles.profile(Profiles.body([[%i[string plus put main], 4]], **given)))

  def test_calls_that_the_backend_does_not_see
    said = grown(allocator_grown_bytes: 31 << 20, rss_grown_bytes: 36 << 20)

    assert_includes said, "Memory in use in malloc grew by 31.0 MiB while the profile ran; the samples account for " \
                          "4.0 MiB. The rest was allocated by calls that the backend imports misses: through FFI"
    refute_includes said, "RSS grew"
    refute_includes grown(allocator_grown_bytes: 5 << 20), "does not see"
    # Six samples are expected of 3 MiB, and none can be chance.
    refute_includes unwrapped(Profiles.profile(Profiles.body([], allocator_grown_bytes: 3 << 20))), "does not see"
    refute_includes grown(allocator_grown_bytes: 31 << 20, backend: :jemalloc), "does not see"
    refute_includes grown(allocator_grown_bytes: nil, rss_grown_bytes: nil), " grew by "
  end

  def test_growth_outside_of_malloc
    said = grown(allocator_grown_bytes: 4 << 20, rss_grown_bytes: 290 << 20)

    assert_includes said, "RSS grew by 290.0 MiB while the profile ran, and memory in use in malloc by 4.0 MiB: the " \
                          "rest is in Ruby's heap, stacks, mappings or free memory, which no malloc profile sees " \
                          "(memscope report --pid"
    refute_includes grown(allocator_grown_bytes: 4 << 20, rss_grown_bytes: 13 << 20), "RSS grew"
    nothing = unwrapped(Profiles.profile(Profiles.body([], allocator_grown_bytes: 0, rss_grown_bytes: 290 << 20)))

    assert_includes nothing, "No sampled allocation is still live. RSS grew by 290.0 MiB while the profile ran"
  end

  def test_growth_between_two_profiles_of_one_process
    earlier = Profiles.body([[%i[string plus put main], 4]], allocator_grown_bytes: 4 << 20, rss_grown_bytes: 6 << 20)
    later = { **earlier, allocator_grown_bytes: 34 << 20, rss_grown_bytes: 286 << 20 }
    said = unwrapped(Profiles.profile(later).growth_since(Profiles.profile(earlier)))

    assert_includes said, "Memory in use in malloc grew by 30.0 MiB while the profile ran; the samples account for 0 B."
    assert_includes said, "RSS grew by 280.0 MiB while the profile ran, and memory in use in malloc by 30.0 MiB"
  end

  def test_more_samples_than_growth
    assert_includes grown(coverage: 3.68), "account for 368 % of the growth in the allocator's own count, since " \
                                           "older memory was freed in the meantime."
    refute_includes grown, "older memory was freed"
  end

  def test_an_order_that_may_be_chance
    tied = "The first 2 lines differ by less than two standard errors: their order may be chance"

    assert_includes unwrapped(Profiles.profile(Profiles.body([[%i[string put], 6], [%i[tree parse], 5]]))), tied
    refute_includes unwrapped(Profiles.profile(Profiles.body([[%i[string put], 60], [%i[tree parse], 5]]))), "chance"
    refute_includes unwrapped(Profiles.profile(Profiles.body([[%i[string put], 60]]))), "chance"
  end

  # Where nothing has survived a full GC yet, all ranks of survival are 0, which is no tie.
  def test_an_order_before_the_first_full_gc
    profile = Profiles.profile(Profiles.body([[%i[string put], 60], [%i[tree parse], 5]]))

    refute_includes unwrapped(profile.judged_up_to(0)), "chance"
    assert_includes unwrapped(profile.judged_up_to(0)), "collect first"
  end
end
