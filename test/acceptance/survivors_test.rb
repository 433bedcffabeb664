# frozen_string_literal: true

require_relative "../test_helper"

# A profile for another process distinguishes memory that has survived a major GC from memory that may be garbage, so
# that a leak is not hidden by memory that the program is about to let go of.
class SurvivorsTest < MemscopeTest
  parallelize_me!

  MEBIBYTE = 1_048_576
  # 8 MiB are kept, and judged by a major GC of the program's own; then 24 MiB are allocated, and are garbage at once.
  PROGRAM = <<~RUBY
    lease = Memscope::MallocProfile.lease
    kept = []
    def keep(kept) = 2_048.times { kept << ("k" * 4_096) }
    def waste = 6_144.times.map { "w" * 4_096 } && nil
    GC.disable
    token = lease.start(seconds: 60, rate: 1 << 14, backend: :imports)
    keep(kept)
    generation = Memscope::MallocProfile.snapshot.generation
    sleep 0.05 while Memscope::MallocProfile.snapshot.generation == generation
    GC.start if %<judged>s
    Thread.new { waste }.join
    profile = lease.stop(token: token, gc: %<collect>s)
    puts JSON.generate(profile: profile.to_h, text: profile.to_s)
  RUBY

  def recorded(**given)
    answer = child_json(format(PROGRAM, judged: false, collect: false, **given),
                        requires: %w[json memscope memscope/profile/malloc_profile])
    [Memscope::Profile.from_h(answer["profile"]), answer["text"].gsub(/\s+/, " ")]
  end

  # Within five standard errors, plus what Ruby itself allocates meanwhile: 1 MiB for the VM stack of each thread.
  def assert_mebibytes(expected, bytes, profile)
    assert_in_delta(expected, bytes.fdiv(MEBIBYTE), 3 + (5 * profile.error_bytes.fdiv(MEBIBYTE)))
  end

  def test_what_survived_comes_first
    skip_under_sanitizer
    profile, text = recorded(judged: true)

    assert_mebibytes 8, profile.survived_bytes, profile
    assert_mebibytes 24, profile.unjudged_bytes, profile
    assert_match(/MiB of it survived a full GC, and 2\d\.\d MiB was allocated since, which may be garbage/, text)
    assert_operator text.index("keep"), :<, text.index("waste")
    assert_equal profile, Memscope::Profile.from_json(profile.to_json)
  end

  def test_without_a_major_gc_nothing_is_judged
    skip_under_sanitizer
    profile, text = recorded

    assert_equal 0, profile.survived_bytes
    assert_mebibytes 32, profile.unjudged_bytes, profile
    assert_includes text, "No full GC has run since then, so it may be garbage: collect first (GC.start, --gc)."
  end

  def test_garbage_is_collected_when_asked_for
    skip_under_sanitizer
    profile, = recorded(collect: true)

    assert_mebibytes 8, profile.survived_bytes, profile
    assert_mebibytes 0, profile.unjudged_bytes, profile
  end

  def test_a_profile_without_a_watch_is_not_judged
    profile = Memscope.malloc_profile(backend: :imports) { Array.new(10) }

    assert_nil profile.survived_bytes
    refute_includes profile.to_h, :unjudged_generation
  end
end
