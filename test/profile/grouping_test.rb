# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profile_cases"

# Under which line, method, library … a stack counts.
class ProfileGroupingTest < MemscopeTest
  include ProfileCases

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
end
