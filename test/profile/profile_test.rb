# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profile_cases"

class ProfileTest < MemscopeTest
  include ProfileCases

  # Only the profiled process knows which gems its application has.
  def test_the_application_is_that_of_the_profiled_process
    gem = { **Profiles.ruby("Billing.run", "/srv/app/gems/billing-2/lib/billing.rb", 3), library: "application" }
    profile = Profiles.profile(Profiles.whole([Profiles::FRAMES[:set], gem], [Profiles.stack([0, 1], 4096, 0)],
                                              application_root: "/srv/app", application_root_source: :bundler))
    back = Dir.chdir("/") { Memscope::Profile.from_json(profile.to_json) }

    assert_equal ["/srv/app", :bundler], [back.application_root, back.application_root_source]
    assert_equal [gem[:path]], back.by(:caller).map(&:path)
    assert_equal profile.by(:caller), back.by(:caller)
  end

  def test_json_from_before_the_application_was_known
    json = JSON.generate(shop.to_h.except(:application_root, :application_root_source))

    assert_nil Memscope::Profile.from_json(json).application_root
    assert_equal shop.by(:caller), Memscope::Profile.from_json(json).by(:caller)
  end

  def test_a_part_of_a_profile_knows_nothing_of_the_rest
    part = shop.part(0..0)

    assert_equal [nil, nil, nil], [part.own_bytes, part.allocator_grown_bytes, part.rss_grown_bytes]
  end

  def test_a_profile_goes_to_json_and_back
    SEEDS.each do |seed|
      profile = Profiles.profile(Profiles.random(seed, allocations: seed.odd?))
      back = Memscope::Profile.from_json(profile.to_json)

      assert_equal profile, back
      assert_equal profile.by(:line), back.by(:line)
      assert_equal profile.started_at, back.started_at
    end
  end

  def test_it_is_frozen_to_the_bottom
    assert(Ractor.shareable?(shop))
    refute_includes shop.inspect, "rb_str_plus"
  end

  def test_bytes_that_are_no_text
    name = "\xff\xfe".b
    frame = Profiles.ruby(name, "/srv/\xff.rb".b, 1)
    profile = Profiles.profile(Profiles.whole([frame], [Profiles.stack([0], 4096, 0, tag: name, thread: name)]))

    assert_equal profile, Memscope::Profile.from_json(profile.to_json)
    GROUPINGS.each { |grouping| assert_predicate profile.by(grouping).first.name, :valid_encoding? }
  end

  # Such names occur in a program whose locale is C, or that passes a file name to eval.
  def test_frozen_names_and_paths_that_are_no_text
    frames = [Profiles.ruby((+"caf\xe9").force_encoding("ISO-8859-1").freeze, "/srv/\xff.rb".b.freeze, 1),
              Profiles.ruby("run", (+"/srv/d\u00e9p\u00f4t.rb").force_encoding("US-ASCII").freeze, 2)]
    profile = Profiles.profile(Profiles.whole(frames, [Profiles.stack([0], 4096, 0), Profiles.stack([1], 4096, 0)]))

    assert_equal profile, Memscope::Profile.from_json(profile.to_json)
    assert_equal "/srv/d\u00e9p\u00f4t.rb", profile.frames.last.path
    %i[to_s to_html to_speedscope].each do |form|
      assert_includes profile.public_send(form), "run"
    end
  end

  def test_a_process_in_which_nothing_was_sampled
    profile = Profiles.profile(Profiles.body([]))

    GROUPINGS.each { |grouping| assert_empty profile.by(grouping) }
    assert_equal 0, profile.total_live_bytes
    assert_equal profile, Memscope::Profile.from_json(profile.to_json)
  end

  # `memscope profile --by=method --format=pprof`.
  def test_options_of_the_text_change_no_other_format
    profile = shop
    texts = Memscope::Profile::FORMATS.keys.to_h { |format| [format, profile.formatted(format, by: :method)] }

    assert_equal profile.to_s(by: :method), texts[:text]
    assert_equal ["#{profile.to_json}\n", "#{profile.to_speedscope}\n", profile.to_pprof, profile.to_html],
                 texts.values_at(:json, :speedscope, :pprof, :html)
  end

  def test_a_wrong_grouping
    refused("Memscope::Profile#by: grouping: given :file, allowed: :line, :caller, :method, :native, :library, " \
            ":stack, :generation, :tag, :thread") { shop.by(:file) }
    refused('grouping: given "line"') { shop.by("line") }
    refused("grouping: given :file") { shop.to_s(by: :file) }
    refused("Memscope::Profile#to_s: limit: given 0, allowed: an Integer of 1 or more") { shop.to_s(limit: 0) }

    assert_equal shop.to_s(limit: 1_000), shop.to_s(limit: 2**70)
  end

  def test_truncated_json
    json = shop.to_json
    (0...json.bytesize).step(97) do |length|
      refused("Memscope::Profile.from_json: json: given #{length} bytes") { Memscope::Profile.from_json(json[0, length]) }
    end
    refused("json: given nil, allowed: a String") { Memscope::Profile.from_json(nil) }
  end

  def test_json_of_something_else
    { '{"kind":"ledger","schema":1}' => 'kind: given "ledger", allowed: profile', "[]" => "given []",
      shop.to_json.sub('"imports"', '"dtrace"') => 'backend: given "dtrace", allowed: jemalloc, imports',
      shop.to_json.sub('"frames":[0,', '"frames":[999,') => "stacks[0].frames: given 999, allowed: indexes into frames",
      shop.to_json.sub('"frames":[0,', '"frames":[null,') => "stacks[0].frames: given nil, allowed: indexes",
      shop.to_json.sub('"frames":[0,', '"frames":[-1,') => "stacks[0].frames: given -1, allowed: indexes",
      shop.to_json.sub('"live_objects":', '"live_objects":-') => "stacks[0].live_objects: given -",
      shop.to_json.sub(/"live_bytes":\d+/, '"live_bytes":1') => "live_bytes: given #{shop.live_bytes}, allowed: " }
      .each { |json, text| refused(text) { Memscope::Profile.from_json(json) } }
  end

  # A profile that has six times as many stacks takes about six times as long, to load and in each format.
  def test_the_time_grows_with_the_stacks
    body = JSON.parse(Profiles.profile(Profiles.shop).to_json)
    few, many = [400, 2_400].map do |count|
      stacks = body["stacks"].cycle.first(count).map.with_index { |one, index| { **one, "thread" => "t#{index % 50}" } }
      { **body, "stacks" => stacks, "live_bytes" => stacks.sum { |stack| stack["live_bytes"] },
                "samples" => stacks.sum { |stack| stack["samples"] } }
    end
    forms = %i[to_s to_html to_speedscope to_pprof to_json]
    [->(given) { Memscope::Profile.from_h(given) },
     *forms.map { |form| ->(given) { given.public_send(form) } }].each.with_index do |form, index|
      short, long = [few, many].map do |given|
        given = Memscope::Profile.from_h(given) if index.positive?
        seconds { form.call(given) }
      end

      assert_operator long, :<, (15 * short) + 0.1, [:from_h, *forms][index]
    end
  end

  # CPU time of this thread, in the quicker of two runs.
  def seconds
    Array.new(2) do
      started = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      yield
      Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - started
    end.min
  end
end
