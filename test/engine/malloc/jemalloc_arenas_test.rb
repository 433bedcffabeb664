# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/allocator_fixtures"

class EngineJemallocArenasTest < MemscopeTest
  parallelize_me!

  JEMALLOC = AllocatorFixtures::JEMALLOC
  ARENAS = 20

  ROWS = File.readlines(File.join(Compiled::ENGINE, "malloc/jemalloc_arenas.def")).grep(/^KEY/)
             .map { |row| row.match(/\AKEY\((\w+), (\w+), "([\w.]+)", (\w+), (\w+)\)$/).captures }.freeze
  # Upstream's keys that have another name in its JSON, and those that are only in its text for people.
  PRINTED = { "uptime" => "uptime_ns" }.freeze
  NOT_PRINTED = { "BIN" => ["nslabs"], "LARGE" => %w[nmalloc ndalloc nrequests] }.freeze

  def setup
    skip_under_sanitizer
    skip "not installed: #{JEMALLOC}" unless AllocatorFixtures.available?(JEMALLOC)
  end

  def run_program(mode, preload: JEMALLOC, env: {})
    program = Compiled.program("engine/malloc/jemalloc_figures.c",
                               engine: %w[malloc/jemalloc.c malloc/jemalloc_keys.c malloc/jemalloc_arenas.c
                                          base/scratch.c base/status.c],
                               arguments: ["-Wl,-z,dynamic-undefined-weak",
                                           "-Wl,--wrap=memscope_jemalloc_advance_epoch", "-pthread"])
    ChildProcess.run_command(program, mode, preload: preload, env: env)
  end

  # What jemalloc prints, the arenas as the engine reads them, and the size classes of each, all from one epoch.
  def readings
    @readings ||= begin
      env = { "MALLOC_CONF" => "narenas:#{ARENAS},dirty_decay_ms:4000,muzzy_decay_ms:-1" }
      printed, *read = run_program("arenas", env: env).out.lines
      [JSON.parse(printed, allow_duplicate_key: true).fetch("jemalloc"), *read.map { |line| JSON.parse(line) }]
    end
  end

  def keys(group) = ROWS.filter_map { |row| row[2] if row.first == group }

  # The values in malloc_stats_print's output for the keys of a group.
  def printed_row(printed, group)
    (keys(group) - NOT_PRINTED.fetch(group, [])).to_h do |key|
      [key, printed.dig(*PRINTED.fetch(key, key).split("."))]
    end.compact
  end

  def each_arena
    printed, read, = readings
    read["arenas"].each do |arena|
      name = arena["index"] == 4096 ? "merged" : arena["index"].to_s
      yield name, printed.dig("stats.arenas", name), arena
    end
  end

  def test_every_number_of_every_arena_is_what_jemalloc_prints
    printed, read, = readings
    indices = printed["stats.arenas"].keys.grep(/\A\d+\z/).map(&:to_i)

    assert_operator indices.size, :>=, 16
    assert_equal([*indices, 4096], read["arenas"].map { |arena| arena["index"] })
    each_arena { |name, expected, arena| assert_equal printed_row(expected, "ARENA"), arena["numbers"], name }
  end

  # Up to 5.3.0, only num_ops is correct in malloc_stats_print's JSON (fixed by jemalloc's commit 12b33ed8).
  def test_every_number_of_every_mutex_is_what_jemalloc_prints
    right = readings.first["version"].start_with?("5.3.0") ? ["num_ops"] : keys("MUTEX")
    each_arena do |name, expected, arena|
      assert_equal expected["mutexes"].keys, arena["mutexes"].keys
      arena["mutexes"].each do |mutex, counts|
        assert_equal counts["by_name"], counts["read"], "#{mutex} of #{name}"
        assert_equal expected["mutexes"][mutex].slice(*right), counts["read"].slice(*right), "#{mutex} of #{name}"
      end
    end
  end

  def test_what_was_read_is_not_all_zero
    arenas = readings[1]["arenas"].map { |arena| arena["numbers"] }
    told = %w[nthreads uptime pactive pdirty mapped retained base internal resident tcache_bytes small.allocated
              large.allocated]

    assert_empty(told.reject { |key| arenas.any? { |numbers| numbers.fetch(key).positive? } })
    assert_equal [4000, -1], arenas.first.values_at("dirty_decay_ms", "muzzy_decay_ms")
  end

  def test_the_arena_of_huge_allocations_is_told
    printed, read, = readings
    huge = read["arenas"].select { |arena| arena["huge"] }

    assert_equal([printed.dig("opt", "narenas")], huge.map { |arena| arena["index"] })
    assert_operator huge.first.dig("numbers", "large.allocated"), :>=, 9 << 20
  end

  def test_arenas_have_the_names_of_upstream
    printed, read, = readings
    names = read["arenas"].map { |arena| arena["name"] }
    if Gem::Version.new(printed["version"][/\A[\d.]+/]) >= Gem::Version.new("5.3.1")
      assert_equal %w[auto_0 auto_1], names.first(2)
      assert_equal ["auto_oversize", ""], names.last(2)
    else
      assert_equal [""], names.uniq
    end
  end

  def each_list_of_classes
    printed, _, lists = readings
    lists.except("all").each { |name, list| yield name, printed, printed.dig("stats.arenas", name), list }
  end

  # All indexes were requested, and three past the last one.
  def test_there_are_classes_of_each_arena_and_of_no_other
    _, read, lists = readings

    assert_equal(read["arenas"].map { |arena| arena["index"] == 4096 ? "merged" : arena["index"].to_s },
                 lists.keys - ["all"])
  end

  def test_every_number_of_every_small_class_is_what_jemalloc_prints
    each_list_of_classes do |name, printed, arena, classes|
      small = classes.reject { |one| one["large"] }

      assert_equal(printed.dig("arenas", "bin").map { |bin| printed_row(bin, "SLAB") },
                   small.map { |one| one["size"] })
      assert_equal arena["bins"].map { |bin| printed_row(bin, "BIN") },
                   small.map { |one| one["numbers"].except(*NOT_PRINTED["BIN"]) }, name
    end
  end

  def test_every_large_class_is_what_jemalloc_prints
    each_list_of_classes do |name, printed, arena, classes|
      large = classes.select { |one| one["large"] }

      assert_equal(printed.dig("arenas", "lextent").map { |one| printed_row(one, "EXTENT") },
                   large.map { |one| one["size"] })
      assert_equal arena["lextents"].map { |one| printed_row(one, "LARGE") },
                   large.map { |one| one["numbers"].except(*NOT_PRINTED["LARGE"]) }, name
      NOT_PRINTED["LARGE"].each do |key|
        assert_equal arena.dig("large", key), large.sum { |one| one["numbers"][key] }, "#{key} of #{name}"
      end
    end
  end

  def test_classes_sum_to_their_arena
    each_list_of_classes do |_name, printed, arena, classes|
      large, small = classes.partition { |one| one["large"] }
      most = large.sum { |one| one["size"]["size"] * one["numbers"]["curlextents"] }
      exact = !printed.dig("opt", "disable_large_size_classes") # 5.3.1: by default large allocations are whole pages

      assert_equal(arena.dig("small", "allocated"), small.sum { |one| one["size"]["size"] * one["numbers"]["curregs"] })
      assert_operator arena.dig("large", "allocated"), exact ? :== : :<=, most
    end
  end

  def test_a_refresh_in_between_is_read_again_or_said
    moving = "#{AllocatorFixtures.shared('moving_epoch')}:#{JEMALLOC}"

    assert_equal({ "arenas" => 0, "classes" => 0 },
                 run_program("mixed_arenas", preload: moving, env: { "MOVING_EPOCH" => "once" }).json)
    assert_equal({ "arenas" => 10, "classes" => 10 },
                 run_program("mixed_arenas", preload: moving, env: { "MOVING_EPOCH" => "always" }).json)
  end

  def test_the_table_is_well_formed
    ROWS.group_by(&:first).each_value { |rows| assert_equal(rows, rows.uniq { |row| row[1] }) }
    ROWS.each do |_group, field, _key, type, unit|
      assert_includes %w[size_t ssize_t uint64_t uint32_t unsigned], type
      assert_includes %w[PLAIN PAGES], unit
      assert_match(/_bytes\z/, field) if unit == "PAGES"
    end
  end
end
