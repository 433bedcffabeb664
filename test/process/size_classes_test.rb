# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"
require_relative "../support/printed_by_malloc"

class SizeClassesTest < MemscopeTest
  include PrintedByMalloc

  parallelize_me!

  def test_every_number_of_the_size_classes_is_what_jemalloc_prints
    [nil, 3].each do |arena|
      printed, reading = described("size_classes(arena: #{arena.inspect})", preload: JEMALLOC,
                                                                            env: ManyArenas::JEMALLOC)
      small, large = reading["classes"].partition { |size_class| size_class["kind"] == "small" }
      counted = printed.dig("stats.arenas", (arena || "merged").to_s)

      assert_equal(printed.dig("arenas", "bin").zip(counted["bins"]).map { |bin, counts| small_class(bin, counts) },
                   small.map { |one| one.except("utilisation", "slabs_made") })
      assert_equal(printed.dig("arenas", "lextent").zip(counted["lextents"])
                          .map { |one, counts| large_class(one, counts["curlextents"], arena) },
                   large.map { |one| one.slice("size_bytes", "regions_in_use", "in_use_bytes", "slack_bytes") })
      small.each do |one|
        expected = one["regions"].zero? ? nil : one["regions_in_use"].fdiv(one["regions"])

        assert_equal [expected], one.values_at("utilisation")
      end
      assert_equal [arena], reading.values_at("arena")
    end
  end

  def large_class(extent, count, arena)
    count -= 1 if extent["size"] == PRINTING_BYTES && arena.nil?
    { "size_bytes" => extent["size"], "regions_in_use" => count, "in_use_bytes" => count * extent["size"],
      "slack_bytes" => 0 }
  end

  def test_an_arena_that_is_not_there_is_refused
    skip_under_sanitizer
    no_oversize = { "MALLOC_CONF" => "oversize_threshold:1073741824" }
    messages = child_json(<<~RUBY, preload: JEMALLOC, env: no_oversize, requires: ["json"])
      limit = Memscope.arenas.limit
      puts JSON.generate([limit, limit + 1, 4095, 4096, 4097, -1, 2**70, "0", 1.5].map do |arena|
        Memscope.size_classes(arena: arena)
      rescue ArgumentError => e
        e.message
      end)
    RUBY

    messages.each { |message| assert_match(/\AMemscope.size_classes: arena: given .+, allowed: nil, 0\z/, message) }
    assert_equal 9, messages.size
  end

  def test_a_class_of_unknown_size
    unknown = Memscope::SizeClass.capture({ size_bytes: nil, slab_regions: 4, slabs: 2, regions_in_use: 3 })

    assert_equal [8, 3, nil, nil], unknown.to_h.values_at(:regions, :regions_in_use, :in_use_bytes, :slack_bytes)
  end

  def test_lookup
    list = [{ size_bytes: 8, kind: :small, slab_regions: 4, slabs: 1, regions_in_use: 1 },
            { size_bytes: 16_384, kind: :large }]
    classes = Memscope::SizeClasses.capture(allocator: :jemalloc, reasons: {}, cost: Bodies.cost, classes: list)

    assert_in_delta 0.25, classes[8].utilisation
    assert_equal 24, classes.slack_bytes
    assert_nil classes[16_384].utilisation
    assert_match(/has no 9; allowed: 8, 16384/, assert_raises(KeyError) { classes[9] }.message)
  end
end
