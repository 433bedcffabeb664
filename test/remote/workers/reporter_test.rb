# frozen_string_literal: true

require_relative "../../test_helper"

# What a process reports of itself.
class WorkersReporterTest < MemscopeTest
  MEBIBYTE = 1_048_576

  def test_a_purge_under_jemalloc_returns_what_is_predicted
    skip_under_sanitizer
    keeping = { "MALLOC_CONF" => "dirty_decay_ms:-1" } # jemalloc would return some by itself
    predicted, returned = child_json(<<~RUBY, preload: "libjemalloc.so.2", env: keeping)
      require "json"
      kept = Array.new(20_000) { "a" * 3000 }
      kept.select!.with_index { |_string, index| (index % 100).zero? } # so that free itself returns nothing
      GC.start
      predicted = Memscope::Workers::Reporter.new(role: :single).read.purge_bytes
      puts JSON.generate([predicted, Memscope.purge(:purge).returned_bytes])
    RUBY

    assert_operator predicted, :>, 10 * MEBIBYTE
    assert_operator returned, :>=, 0.9 * predicted
  end

  both_allocators "a report has what metrics tell of the process" do |preload|
    report = child_json(<<~RUBY, requires: %w[json memscope/remote/workers], preload: preload)
      sampler = Memscope::Workers::Reporter.new(role: :worker, index: 0)
      all = Array.new(9) { GC.start; sampler.read }
      puts JSON.generate(size: all.last.to_json.bytesize, again: all.map { |one| Memscope::Worker.from_h(JSON.parse(one.to_json)) == one },
                         sums: all.map { |one| [one.leaves.values.sum, one.rows.values.sum] },
                         totals: all.map { |one| [one.snapshot.gc[:total_allocated_objects], one.snapshot.gc[:count],
                                                  one.snapshot.jemalloc&.[](:small_nmalloc)] },
                         arenas: all.last.arenas, checks: all.map(&:unverified_rows),
                         costs: all.map { |one| one.costs[:snapshot][:wall_us] }, read: all.last.costs.keys)
    RUBY

    assert_operator report["size"], :<, 8192
    assert_equal [true], report["again"].uniq
    report["sums"].each { |leaves, rows| assert_equal rows, leaves }
    report["totals"].map(&:compact).transpose.each { |numbers| assert_equal numbers.sort, numbers }
    assert_equal preload ? 3 : 2, report["totals"].first.compact.size unless ChildProcess::SANITIZER

    assert_equal [nil, %w[ledger process_memory snapshot]], report.values_at("arenas", "read")
    # In microseconds: tier T1.
    assert_operator report["costs"].min, :<, 1000
  end

  { jemalloc: "allocated_bytes", glibc: "system_bytes" }.each do |allocator, level|
    define_method("test_arenas_are_reported_where_metrics_are_to_have_them_under_#{allocator}") do
      skip_under_sanitizer
      env = { "MEMSCOPE_METRICS_ARENAS" => "1", "MEMSCOPE_METRICS_LEDGER_INTERVAL" => "60" }
      options = { requires: %w[json memscope/remote/workers], preload: ChildProcess::ALLOCATORS[allocator], env: env }
      report = child_json(<<~RUBY, **options)
        worker = Memscope::Workers::Reporter.new(role: :worker, index: 0).read
        puts JSON.generate([worker.arenas, worker.costs.keys, Memscope::Worker.from_h(JSON.parse(worker.to_json)) == worker])
      RUBY

      assert_operator report.first.fetch(level).fetch("0"), :>, 0
      assert_equal ["arenas", true], [report[1].last, report[2]]
    end
  end

  # 60 tags with the longest names: they fit into a report, but not beside the most arenas.
  def test_the_first_tags_are_reported
    report = child_json(<<~RUBY, requires: %w[json memscope memscope/remote/workers])
      Memscope::ObjectProfile.start(budget: 1)
      60.times { |tag| (60 - tag).times { Memscope.tag("é" * 31 + tag.to_s) { Array.new(50) { Object.new } } } }
      2.times { GC.start }
      worker = Memscope::Workers::Reporter.new(role: :worker, index: 0).read
      puts JSON.generate([worker.to_h, Memscope.tags.bounded.map(&:to_h)])
    RUBY
    reported = Memscope::Worker.from_h(report.first)

    assert_equal [51, "[other]", 1830], [reported.tags.size, reported.tags.last.name, reported.tags.sum(&:runs)]
    assert_equal report.last.map { |row| row["runs"] }, reported.tags.map(&:runs)
    assert_operator reported.to_json.bytesize, :<, 32_768
    assert_includes reported.costs.keys, :tags
  end
end
