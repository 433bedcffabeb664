# frozen_string_literal: true

require_relative "../test_helper"
require "json"
require_relative "../support/histories"
require_relative "../support/metrics_settings"

class MetricsTest < MemscopeTest
  include MetricsSettings

  DEFINITIONS = Memscope::Metrics::DEFINITIONS

  # Counts the calls of the extension.
  COUNTING = <<~RUBY.freeze
    #{CHILD}
    CALLS = Hash.new(0)
    native = Memscope.const_get(:Native)
    native.singleton_class.prepend(Module.new do
      (native.singleton_methods(false) - [:absence]).each do |name|
        define_method(name) { |*arguments| CALLS[name] += 1; super(*arguments) }
      end
    end)
    Memscope.configuration = JSON.parse(ARGV.first)
    families = Array.new(5) { Memscope::Metrics.families }.last
    calls = CALLS.dup
    sources = families.find { |family| family.name == "memscope_reading_seconds" }.samples.map { |s| s.labels[:reading] }
    tiers = sources.to_h { |source| [source, Memscope.public_send(source).cost.tier] }
    puts JSON.generate(calls: calls, tiers: tiers, names: families.map(&:name))
  RUBY

  def counted(interval:, arenas:, preload:)
    child_json("ARGV.replace([#{JSON.generate([interval, arenas]).dump}])\n#{COUNTING}", requires: ["json"],
                                                                                         preload: preload)
  end

  both_allocators "reads nothing above T1 unless asked to" do |preload|
    read = counted(interval: nil, arenas: false, preload: preload)

    assert_equal({ "snapshot" => 5, "cgroup" => 5, "tags_begun?" => 5, "allocator" => 1, "allocator_settings" => 1 },
                 read["calls"])
    assert_equal(%w[T0 T1], read["tiers"].values.uniq.sort)
    assert_empty read["names"].grep(/ledger|arena_|worker_/)
  end

  both_allocators "reads a ledger once in an interval" do |preload|
    read = counted(interval: 60, arenas: false, preload: preload)

    assert_equal [1, 1], read["calls"].values_at("await_gc", "ledger")
    assert_includes read["names"], "memscope_ledger_bytes"
    # One reading with each ledger, and one for the whole life of the process.
    assert_operator read["calls"]["allocator"], :<=, 2
  end

  both_allocators "reads arenas at each collection where they are cheap" do |preload|
    skip_under_sanitizer
    read = counted(interval: nil, arenas: true, preload: preload)

    assert_equal preload ? 5 : 0, read["calls"].fetch("arenas", 0)
    assert_operator read["tiers"].values.max, :<=, "T1"
    assert_equal preload ? 1 : 0, read["names"].count("memscope_arena_allocated_bytes")
  end

  def test_reads_glibcs_arenas_at_the_interval
    skip_under_sanitizer
    read = counted(interval: 60, arenas: true, preload: nil)

    assert_equal 1, read["calls"]["arenas"]
    assert_includes read["names"], "memscope_arena_free_bytes"
  end

  def test_objects_of_the_classes_with_the_most_memory
    off, on, *cached = child_json(<<~RUBY, requires: ["json"])
      #{CHILD}
      class Planted; end
      KEPT = Array.new(50_000) { Planted.new }
      def objects = Memscope::Metrics.families.find { |family| family.name == "memscope_objects" }&.to_h
      Memscope.configuration = [nil, false, false]
      off = objects
      Memscope.configuration = [nil, false, true]
      puts JSON.generate([off, objects, objects])
    RUBY

    assert_nil off
    assert_equal 20, on["samples"].size
    assert_includes on["samples"], { "labels" => { "class" => "Planted" }, "value" => 50_000 }
    assert_equal [on], cached
  end

  def test_tags_of_which_the_first_fifty_have_names
    before, *families = child_json(<<~RUBY, requires: ["json"])
      #{CHILD}
      Memscope.configuration = [nil, false, false]
      tags = -> { Memscope::Metrics.families.select { |family| family.name.start_with?("memscope_tag_") }.map(&:to_h) }
      before = tags.call
      60.times { |tag| (60 - tag).times { Memscope.tag("tag \#{tag}") { 1 } } }
      puts JSON.generate([before, *tags.call])
    RUBY
    runs, running = %w[runs_total running].map do |name|
      family = families.find { |one| one["name"] == "memscope_tag_#{name}" }
      [family["type"], family["samples"].to_h { |sample| [sample["labels"]["tag"], sample["value"]] }]
    end

    assert_empty before
    assert_equal ["counter", 50, 60, 11], [runs[0], runs[1].size, *runs[1].values_at("tag 0", "tag 49")]
    assert_equal ["gauge", 51, 0], [running[0], running[1].size, running[1]["[other]"]]
    assert_equal %w[memscope_tag_running memscope_tag_runs_total], families.map { |family| family["name"] }.sort
  end

  both_allocators "the leaves of the ledger sum to its RSS" do |preload|
    sums = child_json(<<~RUBY, requires: ["json"], preload: preload)
      #{CHILD}
      Memscope.configuration = [0, true]
      3.times.map do
        families = Memscope::Metrics.families.to_h { |family| [family.name, family.samples] }
        rows = families.fetch("memscope_ledger_bytes")
        [rows.sum(&:value), families.fetch("memscope_ledger_rss_bytes").first.value, rows.map(&:labels).uniq.size - rows.size,
         rows.size]
      end.then { |sums| puts JSON.generate(sums) }
    RUBY

    sums.each do |sum, rss, twice, rows|
      assert_equal rss, sum
      assert_equal 0, twice
      assert_operator rows, :>=, 10
    end
  end

  def test_threads_wait_for_one_ledger
    calls = child_json(<<~RUBY, requires: ["json"])
      #{CHILD}
      Memscope.configuration = [60, false]
      calls = Queue.new
      ledger = Memscope::Ledger.method(:read_between_collections)
      Memscope::Ledger.define_singleton_method(:read_between_collections) { calls << 1; sleep 0.05; ledger.call }
      times = Array.new(8) { Thread.new { Memscope::Metrics.families } }.map(&:value).map do |families|
        families.find { |family| family.name == "memscope_ledger_read_time_seconds" }.samples.first.value
      end
      puts [calls.size, times.uniq.size].to_json
    RUBY

    assert_equal [1, 1], calls
  end

  def test_a_forked_child_reads_a_ledger_of_its_own
    pids = child_json(<<~RUBY, requires: ["json"])
      #{CHILD}
      Memscope.configuration = [60, false]
      Memscope::Metrics.families
      ledger = Memscope::Ledger.method(:read_between_collections)
      calls = 0
      Memscope::Ledger.define_singleton_method(:read_between_collections) { calls += 1; ledger.call }
      reader, writer = IO.pipe
      Process.wait(fork { Memscope::Metrics.families; writer.write(calls) })
      writer.close
      puts [calls, reader.read.to_i].to_json
    RUBY

    assert_equal [0, 1], pids
  end

  def test_every_worker_has_samples
    families = in_cluster(master, worker(0), worker(1))

    assert_equal({ "master" => 90_000_000, "0" => 90_000_000, "1" => 90_000_001 }, families["memscope_rss_bytes"])
    assert_equal({ %w[malloc/in_use 0] => 61_000_000, %w[malloc/in_use 1] => 61_000_001 },
                 families["memscope_ledger_bytes"].slice(%w[malloc/in_use 0], %w[malloc/in_use 1]))
    assert_equal(90_000_001, families["memscope_ledger_rss_bytes"]["1"])
    assert_equal({ "0" => 7, "1" => 7 }, families["memscope_worker_unshared_since_fork_bytes"])
    assert_equal (BOOT + 90).to_i, families["memscope_worker_report_time_seconds"]["0"]
  end

  def test_the_verdict_of_each_worker
    verdict = ->(grown) { Histories.judge(5, &grown) }
    leak = verdict.call(->(hour) { { malloc: 36 * hour, malloc_in_use: 36 * hour } })
    families = in_cluster(worker(0, verdict: leak), worker(1, verdict: verdict.call(->(_hour) { {} })), worker(2))

    assert_equal({ %w[leak 0] => 1, %w[steady 0] => 0, %w[leak 1] => 0, %w[steady 1] => 1, %w[leak 2] => nil },
                 [%w[leak 0], %w[steady 0], %w[leak 1], %w[steady 1], %w[leak 2]].to_h do |labels|
                   [labels, families["memscope_verdict"][labels]]
                 end)
    assert_in_delta 36 * 1_048_576 / 3600, families["memscope_leak_bytes_per_second"]["0"], 1_500
    assert_equal 0, families["memscope_leak_bytes_per_second"]["1"]
    refute families.key?("memscope_limit_eta_seconds")
    early = verdict.call(->(hour) { { malloc: 200 * hour } if hour < 0.2 })
    families = in_cluster(worker(0, verdict: leak), worker(1, verdict: early), worker(2))

    assert_equal %w[0], families["memscope_worker_rss_growth_bytes_per_second"].keys
    assert_in_delta leak.bytes_per_hour / 3600.0, families["memscope_worker_rss_growth_bytes_per_second"]["0"]
  end

  def test_the_decisions_of_the_masters_policy
    decided = { none: { not_executed: 7 }, restart: { executed: 2, not_executed: 1 } }
    families = in_cluster(master.tap { |one| one.policy_decisions = decided }, worker(0))

    assert_equal({ %w[none false master] => 7, %w[restart true master] => 2, %w[restart false master] => 1 },
                 families["memscope_policy_decisions_total"])
  end

  def test_rows_of_each_worker_sum_to_its_rss
    families = in_cluster(master, worker(0), worker(1))
    sums = families["memscope_ledger_bytes"].group_by { |(_row, worker), _bytes| worker }

    assert_equal(families["memscope_ledger_rss_bytes"], sums.transform_values { |rows| rows.sum(&:last) })
  end

  def test_whichever_worker_answers_each_has_what_is_of_a_process
    families = in_cluster(master, worker(0), worker(1, pid: Process.pid))

    assert_equal({ "master" => 40, "0" => 40, "1" => 41 }, families["memscope_gc_live_slots"])
    assert_equal({ "master" => 70, "0" => 70, "1" => 71 }, families["memscope_jemalloc_allocated_bytes"])
    assert_equal({ "master" => 500, "0" => 500, "1" => 501 }, families["memscope_virtual_bytes"])
    assert_equal({ %w[dirty 0] => 8192, %w[dirty 1] => 8192 },
                 families["memscope_jemalloc_unused_bytes"].slice(%w[dirty 0], %w[dirty 1]))
    assert_equal 11, families["memscope_gc_collections_total"][%w[minor 1]]
    assert_equal({ "master" => 0, "0" => 0, "1" => 0 }, families["memscope_ledger_unverified_rows"])
  end

  # But for a census, which workers do not report.
  def test_every_family_is_of_all_workers_or_the_same_for_them
    own = DEFINITIONS.reject { |definition| definition.reported? || definition.shared? }

    assert_equal %w[memscope_objects], own.map(&:name)
  end

  def test_in_a_cluster_only_what_all_have_in_common_is_read
    families = in_cluster(worker(0), worker(1, pid: Process.pid))

    assert_equal [[]], families.fetch("memscope_cgroup_current_bytes", { [] => 0 }).keys
    assert_equal [["allocator"], ["cgroup"], %w[ledger 0], %w[ledger 1]],
                 families["memscope_reading_seconds"].keys.map { |labels| Array(labels) }.sort
    assert_in_delta 5e-6, families["memscope_reading_seconds"][%w[ledger 0]]
  end

  def test_tags_of_each_worker
    rows = [{ name: "a", runs: 5, running: 1, retained_objects: 2.5 }, { name: "[other]", runs: 7, running: 0 }]
    families = in_cluster(worker(0, tags: rows.map { |row| Memscope::Tags::Row.capture(row) }), worker(1))

    assert_equal({ %w[a 0] => 5 }, families["memscope_tag_runs_total"])
    assert_equal({ %w[a 0] => 1, %w[[other] 0] => 0 }, families["memscope_tag_running"])
    assert_equal({ %w[a 0] => 2.5 }, families["memscope_tag_retained_objects"])
    refute_includes families, "memscope_tag_live_bytes"
  end

  def test_arenas_of_each_worker
    families = in_cluster(worker(0, arenas: { allocated_bytes: { 0 => 5, 1 => 6 } }), worker(1))

    assert_equal({ %w[0 0] => 5, %w[1 0] => 6 }, families["memscope_arena_allocated_bytes"])
    refute_includes families, "memscope_arena_dirty_bytes"
  end

  both_allocators "a worker reports the rows that a process without workers has" do |preload|
    single, reported = child_json(<<~RUBY, requires: ["json"], preload: preload)
      #{CHILD}
      Memscope.configuration = [0, false]
      rows = Memscope::Metrics.families.find { |family| family.name == "memscope_ledger_bytes" }.samples
      puts JSON.generate([rows.map { |sample| sample.labels[:row] }, Memscope.workers.first.leaves.keys])
    RUBY

    assert_equal single.sort, reported.sort
    assert_includes single, preload ? "malloc/in_use" : "malloc/main_heap" unless ChildProcess::SANITIZER
  end

  def test_a_cluster_costs_no_ledger
    replacing(Memscope, :ledger, -> { flunk "a ledger was read" }) do
      assert_includes in_cluster(worker(0)), "memscope_ledger_bytes"
    end
  end

  def test_workers_rows_are_left_out_as_ledgers_are
    families = in_cluster(worker(0), interval: nil)

    assert_includes families, "memscope_worker_pss_bytes"
    assert_empty families.keys.grep(/ledger/)
  end

  def test_the_newest_of_two_workers_with_one_index
    old = worker(0, pid: 5, phase: 1, booted_at: BOOT - 9)
    new = worker(0, pid: 6, phase: 2, rss_bytes: 5)
    families = in_cluster(new, old)

    assert_equal({ "0" => 5 }, families["memscope_rss_bytes"])
    assert_equal({ "0" => 2 }, families["memscope_worker_phase"])
  end

  def test_a_worker_that_has_not_reported_has_no_samples
    silent = { rss_bytes: nil, pss_bytes: nil, uss_bytes: nil, rows: nil, at: nil, booted_at: nil, shared_bytes: nil,
               unshared_since_fork_bytes: nil, leaves: nil, unverified_rows: nil,
               snapshot: nil, costs: nil }
    families = in_cluster(worker(0), worker(1, **silent))

    assert_equal ["0"], families["memscope_rss_bytes"].keys
    assert_equal ["0"], families["memscope_ledger_read_time_seconds"].keys
    assert_equal ["0"], families["memscope_gc_live_slots"].keys
    assert_equal %w[0], families["memscope_gc_collections_total"].keys.map(&:last).uniq
    assert_equal %w[0 1], families["memscope_worker_phase"].keys
  end

  def test_a_label_of_ones_own
    clustered(worker(0), worker(1)) do
      configured { assert_equal({ "sidekiq" => 1 }, tally(Memscope::Metrics.families(worker: "sidekiq"))) }
      configured { assert_equal({ "7" => 1 }, tally(Memscope::Metrics.families(worker: 7))) }
      configured { assert_equal({ nil => 1 }, tally(Memscope::Metrics.families(worker: false))) }
    end
  end

  def test_another_label_is_refused
    error = assert_raises(ArgumentError) { Memscope::Metrics.families(worker: :web) }

    assert_equal "Memscope::Metrics.families: worker: given :web, allowed: a String, an Integer, false, nil",
                 error.message
  end

  def test_without_puma_nobody_is_asked
    assert_empty child_json("puts [*Memscope::Metrics.send(:reports)].to_json",
                            requires: %w[json memscope/show/metrics])
  end

  private

  def tally(families)
    families.find { |family| family.name == "memscope_rss_bytes" }.samples.map { |sample| sample.labels[:worker] }.tally
  end

  # For each family's name, its values by label values (an Array, or the value alone if there is one label).
  def in_cluster(*workers, interval: 60)
    families = clustered(*workers) { configured(interval: interval) { Memscope::Metrics.families } }
    families.to_h do |family|
      [family.name, family.samples.to_h do |sample|
        values = sample.labels.values
        [values.size == 1 ? values.first : values, sample.value]
      end]
    end
  end
end
