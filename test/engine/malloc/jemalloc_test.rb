# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/allocator_fixtures"

class EngineJemallocTest < MemscopeTest
  JEMALLOC = AllocatorFixtures::JEMALLOC
  STATS = File.join(Compiled::ENGINE, "malloc/jemalloc_stats.def")

  # jemalloc_keys.c's weak references must be kept in a program, as they are in an extension.
  KEEP_WEAK = "-Wl,-z,dynamic-undefined-weak"
  WRAPPED = "-Wl,--wrap=memscope_jemalloc_advance_epoch"

  def setup
    skip_under_sanitizer
  end

  def program
    Compiled.program("engine/malloc/jemalloc_figures.c",
                     engine: %w[malloc/jemalloc.c malloc/jemalloc_keys.c malloc/jemalloc_arenas.c
                                base/scratch.c base/status.c],
                     arguments: [KEEP_WEAK, WRAPPED, "-pthread"])
  end

  def run_program(mode, preload: JEMALLOC)
    skip "not installed: #{JEMALLOC}" unless AllocatorFixtures.available?(JEMALLOC)
    ChildProcess.run_command(program, mode, preload: preload)
  end

  def run_with_moving_epoch(often)
    ChildProcess.run_command(program, "mixed", preload: "#{AllocatorFixtures.shared('moving_epoch')}:#{JEMALLOC}",
                                               env: { "MOVING_EPOCH" => often }).json
  end

  def rows
    File.read(STATS).scan(/^STAT\((\w+), "([\w.]+)", (\w+), (\w+), (\w+), "([\d.]+)"\)$/)
  end

  def merged_bins(json)
    json.dig("arenas", "bin").zip(json.dig("stats.arenas", "merged", "bins"))
  end

  # The value of a key in malloc_stats_print's JSON.
  def printed(json, key)
    path = key.sub("stats.arenas.4096.", "stats_arenas.merged.").split(".")
    json.dig(*path.map { |part| part == "stats_arenas" ? "stats.arenas" : part })
  end

  def test_every_figure_is_what_jemalloc_prints
    result = run_program("figures")
    # jemalloc 5.3.0 prints opt.stats_print twice.
    json = JSON.parse(result.out.lines.first, allow_duplicate_key: true).fetch("jemalloc")
    read = JSON.parse(result.out.lines.last)
    keys = rows.map { |row| row[1] } - %w[epoch]

    assert_equal(keys.to_h { |key| [key, printed(json, key)] }, read.slice(*keys))
    assert_operator read.fetch("stats.arenas.4096.tcache_bytes"), :>, 0
    slack = merged_bins(json).sum do |bin, stats|
      ((bin["nregs"] * stats["curslabs"]) - stats["curregs"]) * bin["size"]
    end

    assert_operator slack, :>, 0
    assert_equal slack, read.fetch("slab_slack_bytes")
  end

  def test_the_table_has_upstreams_sum
    read = JSON.parse(run_program("figures").out.lines.last)
    total = ->(key) { read.fetch("stats.arenas.4096.#{key}") }

    assert_equal read["stats.allocated"], total["small.allocated"] + total["large.allocated"]
    assert_equal read["stats.active"], total["pactive"] * read["arenas.page"]
    assert_equal read["stats.metadata"], total["base"] + total["internal"]
    assert_operator read["stats.resident"], :>=, read["stats.active"] + (total["pdirty"] * read["arenas.page"])
  end

  def test_the_table_is_well_formed
    assert_equal File.read(STATS).scan(/^STAT/).size, rows.size
    assert_equal rows.map(&:first).uniq.size, rows.size
    rows.each do |row|
      field, _key, type, unit, kind = row

      assert_includes %w[size_t uint64_t unsigned], type
      assert_includes %w[bytes pages count ns ms number], unit
      assert_includes %w[gauge counter], kind
      assert_equal unit == "bytes", field.end_with?("_bytes"), field
    end
  end

  def test_readings_allocate_nothing
    assert_equal({ "allocated" => 0 }, run_program("quiet").json)
  end

  def test_one_refresh_in_between_is_read_again
    assert_equal({ "mixed" => 0, "advanced_since" => 0 }, run_with_moving_epoch("once"))
  end

  def test_a_refresh_in_between_each_time_is_said
    assert_equal 10, run_with_moving_epoch("always").fetch("mixed")
  end

  def test_without_jemalloc
    result = run_program("absent", preload: nil).json

    assert_equal [true, 0, "jemalloc_absent"], result.values_at("unsupported", "present", "reason")
  end

  def test_an_idle_jemalloc
    mimalloc = AllocatorFixtures::MIMALLOC
    skip "not installed: #{mimalloc}" unless AllocatorFixtures.available?(mimalloc)
    result = run_program("absent", preload: "#{mimalloc}:#{JEMALLOC}").json

    assert_equal [true, 0], result.values_at("unsupported", "present")
    assert_equal "jemalloc_not_serving", result.fetch("reason")
  end

  def test_a_jemalloc_without_statistics
    preload = "#{AllocatorFixtures.shared('without_stats')}:#{JEMALLOC}"
    result = run_program("absent", preload: preload).json

    assert_equal [true, 0], result.values_at("unsupported", "present")
    assert_equal "jemalloc_without_statistics", result.fetch("reason")
    reading = child_json("require 'json'; puts Memscope.allocator.to_json", preload: preload)

    assert_equal ["jemalloc", true, []], reading.values_at("name", "proved", "others")
  end

  # The compiler rejects two different declarations of one function.
  def test_the_declarations_are_upstreams
    check = Compiled.path("declarations.c")
    File.write(check, "#include <jemalloc/jemalloc.h>\n#include \"malloc/jemalloc_keys.c\"\n")
    skip "jemalloc/jemalloc.h is not installed" unless system("cc -E -include jemalloc/jemalloc.h -x c /dev/null",
                                                              out: File::NULL, err: File::NULL)

    assert Compiled.run("cc", *Compiled::FLAGS, "-I#{Compiled::ENGINE}", "-fsyntax-only", check)
    File.write(check, "#include <jemalloc/jemalloc.h>\nextern int mallctl(int name);\n")
    assert_raises(Compiled::Failure) { Compiled.run("cc", "-fsyntax-only", check) }
  end
end
