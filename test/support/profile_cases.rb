# frozen_string_literal: true

require_relative "profiles"

# What tests of profiles share.
module ProfileCases
  MEBIBYTE = 1_048_576
  GROUPINGS = Memscope::Profile::GROUPINGS
  SEEDS = (1..8)

  def shop(**given) = Profiles.profile(Profiles.shop(**given))

  # name => MiB
  def held(profile, grouping) = profile.by(grouping).to_h { |entry| [entry.to_s, entry.live_bytes / MEBIBYTE] }

  def refused(text, &)
    assert_includes assert_raises(ArgumentError, &).message, text
  end
end
