# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profiles"

class ProfileTest < MemscopeTest
  MEBIBYTE = 1_048_576
  GROUPINGS = Memscope::Profile::GROUPINGS
  SEEDS = (1..8)

  def shop(**given) = Profiles.profile(Profiles.shop(**given))

  # name => MiB
  def held(profile, grouping) = profile.by(grouping).to_h { |entry| [entry.to_s, entry.live_bytes / MEBIBYTE] }

  def refused(text, &)
    assert_includes assert_raises(ArgumentError, &).message, text
  end

  def test_the_line_nearest_to_the_allocation
    assert_equal({ "/srv/app/models/cache.rb:9 in Cache#put" => 119, "[no GVL]" => 5,
                   "#{Profiles::GEMS}/nokogiri-1.15.4-x86_64-linux/lib/nokogiri/xml.rb:33 in Nokogiri::XML.parse" => 3,
                   "#{RbConfig::CONFIG['rubylibdir']}/set.rb:400 in Set#add" => 2 }, held(shop, :line))
  end

  def test_what_has_no_line
    profile = Profiles.profile(Profiles.body([[%i[malloc deflate], 4], [%i[plus], 3], [[], 2], [%i[tap], 1]]))

    assert_equal({ "malloc" => 4, "String#+" => 3, "[no frames]" => 2, "Kernel#tap" => 1 }, held(profile, :line))
    assert_equal({ "libz.so.1" => 4, "[no library]" => 3, "[no frames]" => 2, "Ruby standard library" => 1 },
                 held(profile, :library))
    assert_equal({ "deflateInit2_" => 4, "String#+" => 3, "[no frames]" => 2, "Kernel#tap" => 1 },
                 held(profile, :native))
  end

  # It may have been nearer to the allocation than the lines that are known.
  def test_a_frame_that_found_no_room_is_nobody_elses_line
    profile = Profiles.profile(Profiles.body([[%i[no_room put main], 4], [%i[put no_room], 3]]))

    %i[line caller].each do |grouping|
      assert_equal({ "[no room]" => 4, "/srv/app/models/cache.rb:9 in Cache#put" => 3 }, held(profile, grouping))
    end
  end

  def test_what_asks_for_memory_of_ruby_is_named
    profile = Profiles.profile(Profiles.body([[%i[xmalloc string put], 4], [%i[xmalloc deflate], 3], [%i[xmalloc], 2]]))

    assert_equal({ "rb_str_plus" => 4, "deflateInit2_" => 3, "ruby_xmalloc2" => 2 }, held(profile, :native))
  end

  # The names in an unstripped Ruby, including those of 3.4 and 4.0.
  def test_no_name_of_what_allocates_for_ruby_is_in_the_way
    %w[rb_gc_impl_malloc rb_gc_impl_calloc rb_gc_impl_realloc objspace_xmalloc0 objspace_xrealloc ruby_xmalloc2_body
       ruby_sized_xrealloc2 rb_xmalloc_mul_add rb_xrealloc_mul_add].each do |name|
      body = Profiles.body([[%i[xmalloc string put], 4]])
      body[:frames][0] = { **body[:frames][0], name: name }

      assert_equal({ "rb_str_plus" => 4 }, held(Profiles.profile(body), :native), name)
    end
  end

  def test_methods_native_functions_and_libraries
    assert_equal({ "Cache#put" => 89, "block in Cache#put" => 30, "[no GVL]" => 5, "Nokogiri::XML.parse" => 3,
                   "Set#add" => 2 }, held(shop, :method))
    assert_equal({ "rb_str_plus" => 92, "deflateInit2_" => 34, "xmlNewNode" => 3 }, held(shop, :native))
    assert_equal({ "application" => 90, "libz.so.1" => 34, "nokogiri 1.15.4" => 3, "Ruby standard library" => 2 },
                 held(shop, :library))
  end

  def test_a_library_by_its_path
    stacks = { unnamed: "libpq.so.5", zlib: "Ruby standard library", rails: "rails 0123456789ab", put: "application",
               parse: "nokogiri 1.15.4", set: "Ruby standard library", string: "libruby-3.1.so.3.1" }

    stacks.each do |frame, library|
      assert_equal [library], Profiles.profile(Profiles.body([[[frame], 1]])).by(:library).map(&:name), frame
    end
  end

  def test_the_applications_line_that_called
    assert_equal({ "/srv/app/models/cache.rb:9 in Cache#put" => 119, "[no GVL]" => 5,
                   "/srv/app/main.rb:18 in <main>" => 5 }, held(shop, :caller))
    profile = Profiles.profile(Profiles.body([[%i[string thread], 4], [%i[tap], 3], [[], 2], [%i[malloc], 1]]))

    assert_equal({ "[no line of the application]" => 8, "[no frames]" => 2 }, held(profile, :caller))
  end

  def test_both_ends_of_a_call
    line, = shop.by(:line).select { |entry| entry.path&.end_with?("set.rb") }
    caller, = shop.by(:caller).select { |entry| entry.path == "/srv/app/main.rb" }

    assert_equal [["/srv/app/main.rb:18", 2 * MEBIBYTE]], line.callers
    assert_equal [3 * MEBIBYTE, 2 * MEBIBYTE], caller.lines.map(&:last)
    assert_match(%r{nokogiri/xml\.rb:33\z}, caller.lines.first.first)
    assert_empty shop.by(:line).first.callers
    assert_empty shop.by(:line).flat_map(&:lines)
    assert_equal line.callers, shop.by(:method).find { |entry| entry.name == "Set#add" }.callers
    assert_empty shop.by(:library).flat_map(&:callers)
    assert_equal caller, Memscope::Profile::Entry.from_h(JSON.parse(caller.to_json))
  end

  # Before Ruby 3.3, such code does not name the file that called eval.
  def test_evaluated_code_without_a_file
    frames = [Profiles.ruby("Cache#put", "(eval)", 1), Profiles.ruby("Cache#put", "/srv/app/cache.rb", 9)]
    profile = Profiles.profile(Profiles.whole(frames, [Profiles.stack([0, 1], 4096, 0)]))
    entry, = profile.by(:line)

    assert_equal ["(eval)", [["/srv/app/cache.rb:9", 4096]]], [entry.path, entry.callers]
    assert_equal "/srv/app/cache.rb:9 in Cache#put", profile.by(:caller).first.to_s
  end

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

  def test_generations_tags_and_threads
    assert_equal({ "generation 0" => 91, "generation 1" => 38 }, held(shop, :generation))
    assert_equal({ "[no tag]" => 99, "checkout" => 30 }, held(shop, :tag))
    assert_equal({ "[no name]" => 100, "puma 1" => 29 }, held(shop, :thread))
    assert_equal 6, shop.by(:stack).size
  end

  # The tagging methods have lines of their own, which hold nothing.
  def test_the_line_under_a_tag_is_the_applications
    tags = { "block in Memscope::RackTags#call" => "rack_tags", "Memscope::MallocProfile.tag" => "malloc_profile",
             "Memscope.tag" => "facade", "Memscope::SidekiqTags#call" => "sidekiq_tags" }
    frames = tags.map { |name, file| Profiles.ruby(name, "/gems/memscope-0.1.0/lib/memscope/#{file}.rb", 9) }
    stack = Profiles.stack([0, 1, 2, 3, 4], 1 << 20, 0)
    held = ->(*frames) { Profiles.profile(Profiles.whole(frames, [stack])).by(:line).first.name }

    assert_equal "Shop#buy", held.call(*frames, Profiles.ruby("Shop#buy", "/srv/shop.rb", 3))
    assert_equal "block in Memscope::RackTags#call", held.call(*frames, Profiles.frame(:ruby, "Integer#times"))
    assert_equal "Shop.tag", held.call(Profiles.ruby("Shop.tag", "/srv/shop.rb", 3), *frames)
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

  def test_a_part_of_a_profile_knows_nothing_of_the_rest
    part = beside_the_application(Profiles.ruby("Memscope.x", "#{OWN}forks.rb", 1)).part(0..0)

    assert_equal [nil, nil, nil], [part.own_bytes, part.allocator_grown_bytes, part.rss_grown_bytes]
  end

  def test_an_entry
    entry = shop.by(:line).first

    assert_equal ["Cache#put", "/srv/app/models/cache.rb", 9], [entry.name, entry.path, entry.lineno]
    assert_equal "rb_str_plus (libruby-3.1.so.3.1)", entry.native
    assert_equal({ 0 => 89 * MEBIBYTE, 1 => 30 * MEBIBYTE }, entry.generations)
    assert_equal 238, entry.samples
    assert_in_delta 119 / 129.0, entry.share
    assert_nil entry.allocated_bytes
    assert_equal entry, Memscope::Profile::Entry.from_h(JSON.parse(entry.to_json))
    assert_predicate entry, :frozen?
  end

  def each_grouping
    SEEDS.each do |seed|
      profile = Profiles.profile(Profiles.random(seed))
      GROUPINGS.each { |grouping| yield profile, profile.by(grouping) }
    end
  end

  def test_groups_sum_to_the_whole
    each_grouping do |profile, entries|
      assert_equal profile.total_live_bytes, entries.sum(&:live_bytes)
      assert_equal profile.samples, entries.sum(&:samples)
      assert_equal profile.stacks.sum(&:live_objects), entries.sum(&:live_objects)
      assert_in_delta 1, entries.sum(&:share)
      assert_equal(entries.map(&:live_bytes), entries.map { |entry| entry.generations.values.sum })
    end
  end

  def test_the_largest_is_first
    each_grouping { |_profile, entries| assert_equal entries.map(&:live_bytes).sort.reverse, entries.map(&:live_bytes) }
  end

  def test_errors_add_in_quadrature
    each_grouping do |profile, entries|
      assert_in_delta profile.error_bytes**2, entries.sum { |entry| entry.error_bytes**2 }, profile.error_bytes * 50
    end
  end

  def test_what_was_allocated_is_known_of_all_or_of_none
    [true, false].each do |known|
      profile = Profiles.profile(Profiles.random(1, allocations: known))
      allocated = profile.stacks.filter_map(&:allocated_bytes)

      GROUPINGS.each { |grouping| assert_equal allocated.sum, profile.by(grouping).filter_map(&:allocated_bytes).sum }

      assert_equal known, profile.allocations?
    end
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
