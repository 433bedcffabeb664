# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/profiles"
require_relative "../../support/printed"
require "memscope/show/report"

class ProfileReportTest < MemscopeTest
  include Printed

  def shop(**given) = Profiles.profile(Profiles.shop(**given))

  def unwrapped(...) = text(...).gsub(/\s+/, " ")

  def test_the_first_screen
    said = text(shop, unicode: true)

    assert_match(/^memscope .* · malloc profile · pid \d+$/, said)
    assert_match(/^ +MiB +± +samples +share  line$/, said)
    assert_includes said, "  119.0  7.7      238  92.2 %  /srv/app/models/cache.rb:9 in Cache#put\n" \
                          "#{' ' * 33}by rb_str_plus (libruby-3.1.so.3.1)\n" \
                          "#{' ' * 33}89.0 MiB is of older generations\n"
    assert_operator said.index("119.0"), :<, said.index("5.0  1.6")
  end

  def test_sentences
    said = unwrapped(shop)

    assert_includes said, "129.0 MiB (+-8.0 MiB) allocated in the last 60 seconds is still live, estimated " \
                          "from 258 samples."
    assert_includes said, "On average, GOT hooks (imports) took one sample per 0.5 MiB allocated."
    assert_includes said, "+- is one standard error. The true value lies within three of them 99.7 % of the time."
    assert_includes said, "The samples account for 97 % of the growth in the allocator's own count."
    assert_includes said, "1,234 samples took 18 ms and 1.0 MiB for tables. Profiling is still running."
  end

  # After a collection (--gc), nobody is told to collect.
  def test_what_a_full_gc_has_judged
    said = unwrapped(shop.judged_up_to(0))

    assert_includes said, "No full GC has run since then, so it may be garbage: collect first"

    said = unwrapped(shop.part(1..1).judged_up_to(1))

    assert_includes said, "All of it was allocated since the last full GC, and may be garbage."
    assert_includes unwrapped(shop.part(1..1).judged_up_to(2)), "All of it survived a full GC."
    refute_includes said, "collect first"
  end

  def test_what_distorts_is_said
    overhead = Profiles.overhead(dropped_samples: 3, lost_frees: 1, inflated_bytes: 4 << 20)
    said = unwrapped(shop(backend: :jemalloc, running: false, overhead: overhead, coverage: nil,
                          reasons: { coverage: "it grew by too little", allocated_bytes: "not counted" }))

    assert_includes said, "On average, jemalloc's profiler took one sample"
    assert_includes said, "Profiling has stopped. 3 samples had no room and are missing. Missed 1 free of"
    assert_includes said, "Sampling itself adds 4.0 MiB to jemalloc's active bytes."
    assert_includes said, "coverage: it grew by too little"
    refute_includes said, "not counted"
  end

  def test_lines_with_nothing_live_are_left_out
    stacks = [[%i[string plus put main], 3], [%i[tree parse main], 0], [%i[string tap set main], 0]]
    some = Profiles.profile(Profiles.body(stacks))

    assert_match(/cache\.rb:9 in Cache#put\n +by rb_str_plus/, text(some))
    refute_match(/nokogiri|set\.rb/, text(some))
    none = text(Profiles.profile(Profiles.body(stacks.drop(1))))

    assert_match(/^  No sampled allocation is still live\.$/, none)
    refute_match(/MiB +\+-/, none)
  end

  def test_a_long_function_is_named_whole
    long = Profiles.native("function_with_quite_a_long_name_", "/usr/lib/libwith-a-long-name.so.1")
    stacks = [Profiles.stack([0], 1 << 20, 0)]

    assert_match(/by function_with_quite_a_long_name_$/, text(Profiles.profile(Profiles.whole([long], stacks))))
  end

  def test_the_rest_is_one_line
    assert_match(/^ +10\.0 +2\.2 +20 +7\.8 %  3 other lines$/, text(shop, limit: 1))
    assert_match(/^ +30\.0 .*  1 other tag$/, text(shop, by: :tag, limit: 1))
    assert_match(/ 2 other libraries$/, text(shop, by: :library, limit: 2))
  end

  def test_a_path_that_is_too_long_loses_its_beginning
    said = text(shop, unicode: true)

    assert_match(%r{  …\S+/lib/nokogiri/xml\.rb:33\n +in Nokogiri::XML\.parse\n}, said)
  end

  def test_every_grouping_fits
    Memscope::Profile::GROUPINGS.each do |grouping|
      profile = Profiles.profile(Profiles.random(1))

      assert_includes text(profile, by: grouping), "MiB"
      assert_includes text(profile, unicode: true, by: grouping), "MiB"
    end
  end

  def test_the_applications_line_and_the_line_that_allocated
    rooted = { application_root: "/srv/app", application_root_source: :bundler }
    said = text(shop(**rooted), unicode: true)

    assert_match(/nokogiri.xml\.rb:33\n +in Nokogiri::XML\.parse\n +called from main\.rb:18\n +by xmlNewNode/, said)
    assert_match(%r{ models/cache\.rb:9 in Cache#put\n +by rb_str_plus}, said)
    assert_includes said, "  Application root: /srv/app (the Gemfile's directory).\n"
    said = text(shop(**rooted), unicode: true, by: :caller)

    assert_match(/ main\.rb:18 in <main>\n +allocated at .*xml\.rb:33\n +\(3\.0 MiB; 1 other line: 2\.0 MiB\)\n/, said)
    refute_includes said, "called from"
    assert_match(/ 2 other lines of the application$/, text(shop, by: :caller, limit: 1))
    assert_includes text(shop(application_root: "/")), " /srv/app/models/cache.rb:9"
    refute_includes text(Profiles.profile(Profiles.body([], application_root: nil))), "Application root"
  end

  def test_of_a_difference_what_the_applications_line_grew_by
    earlier = Profiles.profile(Profiles.body([[%i[tree parse main], 3]]))
    later = Profiles.profile(Profiles.body([[%i[tree parse main], 1], [%i[tree parse put], 7]]))

    assert_match(/called from .*cache\.rb:9\n +\(\+7\.0 MiB; 1 other line: -2\.0 MiB\)\n/,
                 text(later.growth_since(earlier)))
    assert_match(/Application root: /, text(later.growth_since(earlier)))
  end

  def test_what_grew
    later = Profiles.profile(Profiles.body([[%i[string plus put main], 90, 0], [%i[tree parse main], 3, 1],
                                            [%i[malloc deflate zlib put main], 29, 0]]))
    said = text(later.growth_since(shop))

    assert_includes said.gsub(/\s+/, " "), "Live memory shrank by 7.0 MiB (+-"
    assert_match(/^ +MiB +\+- +samples +growth  line$/, said)
    assert_match(/^ +-5\.0 +1\.6 +-10 +\[no GVL\]$/, said)
    refute_includes said, "older generations"
  end

  def test_of_a_difference_both_ends_are_shown
    earlier = Profiles.profile(Profiles.random(1))
    said = text(Profiles.profile(Profiles.random(2)).growth_since(earlier), limit: 4, by: :stack)

    assert_match(/^ +-/, said)
    assert_match(/^ +\+/, said)
    assert_match(/other stacks$/, said)
  end

  def objects(*samples) = Profiles.objects(*samples)

  def test_of_objects_their_number_is_shown
    said = text(objects(100, 20))

    assert_match(/^ +MiB +\+- +objects +samples +share  line$/, said)
    assert_match(%r{^ +3\.8 +\d+\.\d +100,000 +100 +83\.3 %  \S+/cache\.rb:9 in Cache#put$}, said)
    assert_match(/4\.6 MiB \(\+-[\d.]+ MiB\) in 120,000 objects \(\+-[\d,]+\) allocated in the last/, said)
    refute_includes said, "too few"
    assert_match(/^ +\+1\.9 +\d+\.\d +\+50,000 +\+50 .*cache\.rb:9 in Cache#put$/,
                 text(objects(150, 20).growth_since(objects(100, 20))))
  end

  def test_of_too_few_samples_nothing_is_estimated
    said = text(objects(100, 9))

    assert_match(/^ +9 {10}1 other line$/, said)
    assert_match(%r{^ +9 +/srv/app/main\.rb:18 in <main>$}, text(objects(5, 9)))
    assert_includes said, "  Where there is no estimate, there are too few samples for one.\n"
    refute_match(/ 9,000 /, said)
    assert_includes unwrapped(objects(9)), "9 samples allocated in the last 60 seconds: too few for an estimate"
  end

  # Objects that are allocated together are sampled together, so the errors of lines do not sum in quadrature.
  def test_several_lines_of_objects_have_no_error_together
    said = text(objects(100, 20, 500, 20), limit: 1)

    assert_match(/^ +1\.5 +- +40,000 +40 +28\.6 %  2 other lines$/, said)
    assert_match(/^ +0\.8 +\d+\.\d +20,000 +20 .*  1 other line$/, text(objects(100, 20), limit: 1))
  end

  def test_memscopes_own_objects_are_not_in_the_profile
    said = unwrapped(objects(100, 20, 500, 20))

    assert_includes said, "5.3 MiB (+-"
    assert_includes said, "in 140,000 objects"
    refute_match(/profile\.rb|memscope itself/, said)
  end

  def test_nothing_at_all
    assert_includes text(Profiles.profile(Profiles.body([]))), "No sampled allocation is still live."
    assert_includes text(shop.then { |profile| profile.growth_since(profile) }), "Live memory has not changed"
  end

  def test_it_is_what_to_s_prints
    assert_equal text(shop, unicode: Encoding.default_external == Encoding::UTF_8, by: :native, limit: 2).lines.drop(1),
                 shop.to_s(by: :native, limit: 2).lines.drop(1)
  end

  # What a profile says of its own limits.
  def grown(**given) = unwrapped(Profiles.profile(Profiles.body([[%i[string plus put main], 4]], **given)))

  def test_calls_that_the_backend_does_not_see
    said = grown(allocator_grown_bytes: 31 << 20, rss_grown_bytes: 36 << 20)

    assert_includes said, "Memory in use in malloc grew by 31.0 MiB while the profile ran, but the samples account " \
                          "for 4.0 MiB. The rest was allocated by calls that the backend imports misses: through FFI"
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

    assert_includes said, "Memory in use in malloc grew by 30.0 MiB while the profile ran, but the samples account " \
                          "for 0 B."
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
