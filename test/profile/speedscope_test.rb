# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profiles"

# The same totals as those of the profile, in speedscope's format.
class ProfileSpeedscopeTest < MemscopeTest
  SCHEMA = File.join(__dir__, "../fixtures/speedscope/file-format-schema.json")
  SEEDS = (1..5)

  def shop = Profiles.profile(Profiles.shop)

  def random(seed) = Profiles.profile(Profiles.random(seed))

  def difference = random(2).growth_since(random(1))

  def speedscope(profile)
    JSON.parse(profile.to_speedscope, symbolize_names: true).tap do |file|
      frames = file[:shared][:frames].size
      file[:profiles].each do |one|
        assert_equal one[:weights].size, one[:samples].size
        assert_equal one[:endValue], one[:weights].sum
        assert(one[:weights].all?(&:positive?))
        assert(one[:samples].flatten.all? { |frame| (0...frames).cover?(frame) })
      end
    end
  end

  def test_speedscope_names_the_kind_of_profile
    { shop => "malloc", Profiles.objects(100) => "object" }.each do |profile, kind|
      assert_equal "#{kind} profile of process #{profile.pid}", speedscope(profile)[:name]
    end
  end

  def test_speedscope
    SEEDS.each do |seed|
      profile = random(seed)
      live, objects, allocated = speedscope(profile)[:profiles]

      assert_equal ["live bytes", "bytes", profile.total_live_bytes], live.values_at(:name, :unit, :endValue)
      assert_equal ["live objects", profile.stacks.sum(&:live_objects)], objects.values_at(:name, :endValue)
      assert_equal profile.stacks.sum(&:allocated_bytes), allocated[:endValue]
    end
    assert_equal(["live bytes", "live objects"], speedscope(shop)[:profiles].map { |one| one[:name] })
  end

  def test_speedscope_of_a_difference
    grown, shrunk = speedscope(difference)[:profiles]

    assert_equal %w[growth shrinkage], [grown[:name], shrunk[:name]]
    assert_equal difference.total_live_bytes, grown[:endValue] - shrunk[:endValue]
  end

  def test_speedscope_has_the_outermost_frame_first
    file = speedscope(Profiles.profile(Profiles.body([[%i[string put main], 1]])))

    assert_equal(["<main>", "Cache#put", "rb_str_plus"],
                 file[:profiles].first[:samples].first.map { |index| file[:shared][:frames][index][:name] })
  end

  def test_speedscope_has_its_schema
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    require "json_schemer"
    schema = JSONSchemer.schema(JSON.parse(File.read(SCHEMA)))

    [shop, random(1), difference, Profiles.profile(Profiles.body([]))].each do |profile|
      assert_empty(schema.validate(JSON.parse(profile.to_speedscope)).map { |fault| fault["error"] })
    end
    refute schema.valid?({ "profiles" => [] })
  end
end
