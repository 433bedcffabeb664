# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profile_cases"

# What a program holds at its end, line by line.
class ProfileLeaksTest < MemscopeTest
  include ProfileCases

  # The put line allocated 40 MiB in each of these generations, and the main line 1 MiB.
  def leaks(*generations, warm: 1, ended: 5, threshold: 10 * MEBIBYTE)
    stacks = generations.flat_map { |generation| [[%i[string put], 40, generation], [%i[main], 1, generation]] }
    Memscope::Profile::Leaks.new(Profiles.profile(Profiles.body(stacks)), warm: warm, ended: ended,
                                                                          threshold: threshold)
  end

  def test_a_line_past_the_threshold_leaks
    found = leaks(0, 1, 2)

    assert_equal :leak, found.verdict
    assert_equal({ 9 => 80 }, found.entries.to_h { |entry| [entry.lineno, entry.live_bytes / MEBIBYTE] })
    assert_equal "leak: one line grew past 10.0 MiB: /srv/app/models/cache.rb:9 in Cache#put by 80.0 MiB " \
                 "(rb_str_plus (libruby-3.1.so.3.1))", found.to_s
  end

  def test_what_the_warm_up_allocated_and_what_came_after_the_end_does_not_count
    assert_equal :steady, leaks(0, 5, 6).verdict
    assert_equal "no line grew past 10.0 MiB", leaks(0, 5).to_s
  end

  # 80 MiB, by 160 samples: two standard errors are 12.6 MiB.
  def test_an_estimate_exceeds_the_threshold_by_two_standard_errors
    assert_equal :leak, leaks(1, 2, threshold: 66 * MEBIBYTE).verdict
    assert_equal :steady, leaks(1, 2, threshold: 68 * MEBIBYTE).verdict
  end

  def test_a_program_that_ends_in_its_warm_up
    assert_equal %i[too_early too_early], [leaks(0, warm: nil), leaks(0, warm: 5)].map(&:verdict)
    assert_match(/\Atoo early: .*--warmup SECONDS/, leaks(0, warm: nil).to_s)
  end

  def test_what_holds_the_objects_is_said
    holder = Memscope::Profile::Holder.capture({ path: "/srv/app/models/cache.rb", lineno: 9, count: 5, sampled: 6,
                                                 links: ["Bus::HANDLERS", "Array"], found_at: 0 })

    assert_match(/, held by Bus::HANDLERS -> Array\z/, leaks(1, 2).held_by([holder]).to_s)
  end
end
