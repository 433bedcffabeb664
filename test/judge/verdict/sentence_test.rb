# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/histories"

# What a verdict says before it can judge, and until when. The other sentences are tested with their verdicts.
class VerdictSentenceTest < MemscopeTest
  parallelize_me!

  def leak(...) = Histories.leak(...)

  def ready(verdict) = (verdict.at + verdict.needs_seconds).strftime("%H:%M")

  def began(verdict) = verdict.growth_since.strftime("%H:%M")

  # The first verdict takes twelve values, one every five minutes.
  def test_one_value_is_too_little
    verdict = leak(:native, 1r / 12)

    assert_equal [:too_early, 1], [verdict.kind, verdict.evidence[:points]]
    assert_in_delta 55 * 60, verdict.needs_seconds, 1
    assert_equal "Too early to tell: one value so far, needs at least 55 minutes more " \
                 "(until #{ready(verdict)} UTC), and growth is called a leak once it has lasted for 2 hours. " \
                 "Since #{began(verdict)} UTC, RSS changed by +2.7 MiB: malloc +2.7.", verdict.sentence
  end

  # A value is of five minutes of the clock: a history of three minutes has none, one of seven has one.
  def test_until_when_it_is_too_early
    { 3 => "no value yet, needs at least 57 minutes more",
      7 => "one value so far, needs at least 53 minutes more" }.each do |minutes, expected|
      verdict = leak(:native, Rational(minutes, 60))

      assert_includes verdict.sentence, "#{expected} (until #{ready(verdict)} UTC)"
      assert_equal [nil, nil, nil, {}, "too early"],
                   [verdict.bytes_per_hour, verdict.bytes_per_hour_low, verdict.bytes_per_hour_high, verdict.reasons,
                    verdict.word]
    end
  end

  # Growth that is found, but has not lasted: it was said with a rate.
  def test_there_is_no_rate_without_a_verdict
    verdict = leak(:native, 2)

    assert_equal [:too_early, nil], [verdict.kind, verdict.bytes_per_hour]
    refute_match(%r{MiB/h}, verdict.sentence)
  end

  def test_half_an_hour_is_too_little
    verdict = leak(:native, 0.5)

    assert_equal :too_early, verdict.kind
    assert_equal 1800, verdict.needs_seconds
    assert_includes verdict.sentence, "Too early to tell: 6 values over 25 minutes, needs at least 30 minutes more " \
                                      "(until #{ready(verdict)} UTC), and growth "
    assert_nil verdict.detectable_bytes_per_hour
    assert_includes File.read(File.join(ChildProcess::ROOT, "ext/memscope/engine/trend/verdict.h")),
                    "#define MEMSCOPE_PERSISTENCE_HOURS 2.0\n"
  end
end
