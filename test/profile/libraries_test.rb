# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profile_cases"

# Which library a file belongs to, and what memscope allocates for itself.
class ProfileLibrariesTest < MemscopeTest
  include ProfileCases

  def test_a_library_by_its_path
    stacks = { unnamed: "libpq.so.5", zlib: "Ruby standard library", rails: "rails 0123456789ab", put: "application",
               parse: "nokogiri 1.15.4", set: "Ruby standard library", string: "libruby-3.1.so.3.1" }

    stacks.each do |frame, library|
      assert_equal [library], Profiles.profile(Profiles.body([[[frame], 1]])).by(:library).map(&:name), frame
    end
  end

  OWN = "#{File.expand_path('../../lib/memscope', __dir__)}/".freeze

  # A stack of these frames, leaf first, and one of the application.
  def beside_the_application(*frames)
    stacks = [Profiles.stack(frames.each_index.to_a, 8 * MEBIBYTE, 0),
              Profiles.stack([frames.size], 4 * MEBIBYTE, 0)]
    Profiles.profile(Profiles.whole([*frames, Profiles::FRAMES.fetch(:put)], stacks))
  end

  def assert_own(expected, *frames)
    profile = beside_the_application(*frames)
    own = expected ? 8 : 0

    sums = [profile.own_bytes, profile.live_bytes, profile.by(:tag).sum(&:live_bytes)]

    assert_equal [own, 12 - own, 12 - own].map { |mebibytes| mebibytes * MEBIBYTE }, sums, frames.inspect
  end

  def test_what_memscope_allocates_for_itself_is_in_no_grouping
    thread = Profiles.ruby("Memscope::Forks.background", "#{OWN}forks.rb", 42)
    json = Profiles.ruby("JSON.generate", "#{RbConfig::CONFIG['rubylibdir']}/json/common.rb", 300)
    gem = Profiles.ruby("JSON::Ext.generate", "#{Profiles::GEMS}/json-2.19.0/lib/json/common.rb", 7)
    created = Profiles.native("thread_create_core", "/usr/lib/libruby.so.3.1")

    assert_own true, created, thread, *Profiles::FRAMES.values_at(:head, :main)
    assert_own true, json, thread
    assert_own true, gem, Profiles::FRAMES.fetch(:each), thread
    GROUPINGS.each do |grouping|
      profile = beside_the_application(created, thread)

      assert_equal 4 * MEBIBYTE, profile.by(grouping).sum(&:live_bytes), grouping
    end
  end

  def test_what_memscope_runs_for_the_application_is_the_applications
    request = Profiles.ruby("Memscope::Check::Application#call", "#{OWN}check/application.rb", 9)
    tag = Profiles.ruby("Memscope::RackTags#call", "#{OWN}rack_tags.rb", 40)

    assert_own false, *Profiles::FRAMES.values_at(:put), request
    assert_own false, *Profiles::FRAMES.values_at(:parse), request
    assert_own false, tag, request
    assert_own false, *Profiles::FRAMES.values_at(:no_room), request
    assert_own false, Profiles::FRAMES.fetch(:set)
  end
end
