# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require "memscope/show/report"

# The forecast of a garbage collection, and of what returns malloc's memory after it, against what the process loses.
class ForecastTest < MemscopeTest
  parallelize_me!

  COUNT = 150_000
  # Or jemalloc returns pages by itself between the forecast and the truth.
  NEVER = { "MALLOC_CONF" => "dirty_decay_ms:-1,muzzy_decay_ms:-1" }.freeze

  DROP = <<~RUBY
    require "memscope"
    require "json"

    def private_bytes = Memscope.process_memory.uss_bytes
    def made(count)
      random = Random.new(1)
      Array.new(count) do |index|
        case index % 4
        when 0 then "x" * (24 + random.rand(400))
        when 1 then Array.new(4 + random.rand(30), index)
        when 2 then "y" * random.rand(2000)
        else { index => 1, 2 => 3 }
        end
      end
    end
    def drop(count, kept_one_in)
      Thread.new do
        objects = made(count)
        KEPT.concat(objects.values_at(*(0...count).step(kept_one_in))) if kept_one_in
        nil
      end.join
    end
    KEPT = []
    LEVERS = Memscope.allocator.name == :jemalloc ? %i[gc tcache purge] : %i[gc trim]
    Memscope.purge(*LEVERS) # loads what it needs
  RUBY

  # @return [Array] the forecast and the truth, of what no other process shares
  def forecast_and_truth(preload, kept_one_in, env = {})
    child_json(<<~RUBY, preload: preload, env: { **NEVER, **env })
      #{DROP}
      GC.disable
      drop(#{COUNT}, #{kept_one_in.inspect})
      runs = GC.count
      forecast = Memscope.purge(*LEVERS, dry_run: true)
      raise "a dry run has collected" unless GC.count == runs
      before = private_bytes
      Memscope.purge(*LEVERS)
      puts JSON.generate([forecast.predicted_private.minmax, before - private_bytes,
                          forecast.levers.map { |lever| [lever.name, lever.reason] }])
    RUBY
  end

  # It is not known how many pages 3.2 and 3.3 return: the lower bound counts none, the upper bound all.
  both_allocators "garbage of mixed sizes within a tenth" do |preload|
    skip_under_sanitizer
    (least, most), truth, reasons = forecast_and_truth(preload, nil)
    share = RUBY_VERSION.between?("3.2", "3.4") ? 5 : 10

    assert_operator truth, :>, COUNT * 150
    [least, most].each { |bound| assert_in_delta truth, bound, truth / share, reasons }
  end

  # One object in 51 is kept, and keeps its page: one of each kind in turn.
  both_allocators "garbage between what is kept" do |preload|
    skip_under_sanitizer
    (least, most), truth, reasons = forecast_and_truth(preload, 51)

    assert_operator truth, :>, COUNT * 80
    [least, most].each { |bound| assert_in_delta truth, bound, truth / 8, reasons }
  end

  # A page of malloc's that cannot be read, such as one that is swapped out, hides what lies behind it.
  def test_garbage_behind_a_page_that_cannot_be_read
    skip_under_sanitizer
    all, rest = child_json(<<~RUBY, requires: ["memscope_test"])
      #{DROP}
      GC.disable
      forecast = -> { Memscope.purge(*LEVERS, dry_run: true).predicted_private.minmax }
      Host.malloc_blocks(100, 2_000)
      -> { made(100_000); nil }.call
      all = forecast.call
      Host.hide_blocks
      puts JSON.generate([all, forecast.call])
    RUBY

    assert_operator all.first, :>, 10_000_000
    assert_operator rest.last, :>=, all.first
    assert_operator rest.first, :<=, all.first
  end

  # Thread caches that keep most of the garbage, or all of it.
  [1_000, 65_535, 65_536].each do |count|
    test = define_method("test_garbage_that_stays_in_a_cache_of_#{count}_chunks_of_each_size") do
      skip_under_sanitizer
      env = { "GLIBC_TUNABLES" => "glibc.malloc.tcache_count=#{count}" }
      (least, most), truth = forecast_and_truth(nil, 50, env)

      assert_operator least, :<=, truth + 1_048_576
      assert_operator most, :>=, truth
    end
    only_in_full(test) if count == 1_000
  end

  def test_without_a_collection_the_forecast_reads_no_garbage
    levers = Memscope.purge(:gc, dry_run: true).levers

    assert_equal [:gc], levers.map(&:name)
    skip_under_sanitizer

    assert_operator levers.first.predicted_bytes, :>=, 0
  end

  # The lazy sweep of the last collection frees what the allocator's figures must already count as free. Within a
  # fifth: under Ruby 3.3 and 4.0, an eighth off was measured, for a reason not yet known.
  both_allocators "a collection under way is finished first" do |preload|
    skip_under_sanitizer
    skip_with_transient_heap_in_malloc if preload
    (least, most), truth, finished, text = child_json(<<~RUBY, preload: preload, env: NEVER)
      #{DROP}
      Thread.new { 200_000.times { |index| "x" * (30 + (index % 900)) } }.join
      GC.disable
      Thread.new { 200_000.times { |index| "x" * (30 + (index % 900)) } }.join
      GC.start(immediate_sweep: false)
      forecast = Memscope.purge(*LEVERS, dry_run: true)
      GC.enable
      before = private_bytes
      Memscope.purge(*LEVERS)
      puts JSON.generate([forecast.predicted_private.minmax, before - private_bytes, forecast.finished_gc?,
                          forecast.to_s.split.join(" ")])
    RUBY

    assert finished
    assert_match(/a garbage collection in progress was finished, and nothing else was changed/, text)
    assert_operator truth, :>, 50 * 1_048_576
    [least, most].each { |bound| assert_in_delta truth, bound, truth / 5, text }
  end

  # Data whose type does not say how much it holds.
  both_allocators "garbage of an extension that reports nothing" do |preload|
    skip_under_sanitizer
    (least, most), truth, unfollowed = child_json(<<~RUBY, preload: preload, env: NEVER, requires: %w[openssl])
      #{DROP}
      digits = "f" * 2_000
      GC.start
      GC.disable
      Thread.new { 10_000.times { OpenSSL::BN.new(digits, 16) } }.join
      forecast = Memscope.purge(*LEVERS, dry_run: true)
      GC.enable
      before = private_bytes
      Memscope.purge(*LEVERS)
      puts JSON.generate([forecast.predicted_private.minmax, before - private_bytes, forecast.uncounted_bytes])
    RUBY

    assert_operator truth, :>, 4 * 1_048_576
    assert_operator least, :<=, truth
    assert_operator most, :>=, truth
    assert_operator most, :<=, least + unfollowed + (4 * 1_048_576)
  end
end

# What a purge leaves out unless it is named: what stops Ruby for long, or costs the machine memory.
class HarmTest < MemscopeTest
  MIB = Bodies::MEBIBYTE
  Purge = Memscope::Purge
  Harm = Purge.const_get(:Harm)
  Forecast = Purge.const_get(:Forecast)

  def left_out(...) = Harm.new(...).left_out

  # Ruby's heap of 100 MiB, part of it shared.
  def ledger(shared:)
    shares = { shared_bytes: shared * MIB, private_bytes: (100 - shared) * MIB }
    Memscope::Ledger.capture(Bodies.ledger(rows: [Bodies.row(:ruby_heap, "Ruby heap", 100, **shares)]))
  end

  def test_what_is_left_out
    assert_nil left_out(200.0, 0)
    assert_nil left_out(1.0, 100_000)
    assert_equal "left out: it would stop Ruby for about 210 ms", left_out(212.0, 0)
    assert_equal "left out: it would make up to 60.0 MiB of shared memory private", left_out(20.0, 60 * MIB)
    assert_equal "left out: it would stop Ruby for about 3.9 s and make up to 60.0 MiB of shared memory " \
                 "private", left_out(3_854.0, 60 * MIB)
    assert_match(/stop Ruby for an unknown time and make an unknown amount of shared memory private/,
                 left_out(nil, nil))
  end

  def test_more_objects_take_longer
    native = Memscope.const_get(:Native)
    before = native.gc_pause_ms
    skip "the extension is not loaded" unless before
    kept = Array.new(20 * GC.stat(:heap_live_slots)) { +"" }

    assert_operator native.gc_pause_ms, :>, 2 * before, kept.size
  end

  # The lower bound is the loss, also where it is unknown how much compaction returns.
  def test_a_compaction_that_costs_more_than_it_returns
    heap = Memscope::RubyHeap.capture(
      { page_bytes: 65_536, pages: 1_600, empty_pages: 0, compactable_bytes: 20 * MIB, slot_sizes: [],
        reasons: { pinned_pages_max: "pins are not known" }, cost: Bodies.cost }
    )
    forecasts = [60, 0].map { |shared| Forecast.of(:compact, ledger(shared: shared), heap: heap, collect: false) }
    shared, alone = forecasts

    assert_equal [nil, (-60 * MIB)..(20 * MIB)], [shared.bytes, shared.private_bytes]
    assert_match(/it writes to pages that are shared/, shared.reason)
    assert_nil alone.private_bytes
    refute_match(/shared/, alone.reason)
  end

  def test_a_collection_writes_to_shared_pages
    forecast = Forecast.new(0..(5 * MIB), 0..(2 * MIB), nil).unsharing(3 * MIB)

    assert_equal((-3 * MIB)..(2 * MIB), forecast.private_bytes)
    assert_match(/it writes to pages that are shared/, forecast.reason)
  end

  # A parent with a heap that its children share, as a preloaded server has. Part of it is garbage: a collection writes
  # to nearly every page.
  PARENT = <<~RUBY
    GC.disable
    kept = Array.new(50_000) { |number| { id: number, name: "customer \#{number}", tags: [number.to_s, "paid"] }.dup }
    uss = -> { File.read("/proc/self/smaps_rollup").scan(/^Private_\\w+: +(\\d+)/).flatten.sum { |kib| kib.to_i * 1024 } }
    in_child = lambda do |&look|
      reader, writer = IO.pipe
      pid = fork do
        2.times { Memscope.purge(Memscope::Purge.allocators_lever) && uss.call }
        before = uss.call
        result = look.call
        writer.puts JSON.generate([result.to_h, before - uss.call])
        exit!(0)
      end
      writer.close
      [JSON.parse(reader.read), Process.wait(pid)].first
    end
  RUBY

  both_allocators "a forked process returns what costs nobody memory" do |preload|
    skip_under_sanitizer
    (_, control), (dry,), (result, gained), (named,), kept =
      child_json(<<~RUBY, preload: preload, requires: %w[json])
        #{PARENT}
        control = in_child.call { 2.times.map { Memscope.ledger(deep: true, shared: true) }.last }
        dry = in_child.call { Memscope.purge(dry_run: true) }
        purged = in_child.call { Memscope.purge }
        named = in_child.call { Memscope.purge(:gc) }
        puts JSON.generate([control, dry, purged, named, kept.size])
      RUBY
    names, predicted = [result, dry].map { |one| one["levers"].map { |lever| lever["name"] } }
    gc = dry["levers"].find { |lever| lever["name"] == "gc" }

    assert_equal [], names & %w[gc compact], kept
    assert_equal predicted & %w[gc compact], result["left_out"].keys
    assert_equal dry["left_out"].keys, result["left_out"].keys
    assert_match(/\Aleft out: it would .*make up to [\d.]+ MiB of shared memory private/, result["left_out"]["gc"])
    assert_operator gc["predicted_private_bytes"], :<, -MIB
    assert_operator gc["predicted_pause_ms"], :>, 0
    assert_operator gained, :>, control - (3 * MIB) # what memscope itself needs
    assert_equal [[], ["gc"]], [named["left_out"].keys, named["levers"].map { |lever| lever["name"] }]
    text = Memscope::Purge::Result.from_h(result).to_s.split.join(" ")

    assert_includes text, "#{result['left_out']['gc']}. Name it to run it"
  end

  def test_a_loss_is_no_return
    skip_under_sanitizer
    (result, gained), = child_json(<<~RUBY, requires: %w[json])
      #{PARENT}
      puts JSON.generate([in_child.call { Memscope.purge(:gc) }])
    RUBY
    read = Memscope::Purge::Result.from_h(result)

    assert_operator read.returned_private_bytes, :<, -6 * MIB
    assert_in_delta gained, read.returned_private_bytes, 2 * MIB
    assert_match(/The machine loses \d+\.\d MiB: the process needs its own copies/, read.to_s)
    refute_match(/ returned$/, read.to_s.lines.grep(/RSS/).join)
  end

  # The doctor states that pause as well, often on the same page.
  def test_a_forecast_states_the_pause_of_its_evidence
    evidence = Memscope.doctor.evidence
    collection = Memscope::Purge.forecast(evidence).levers.find { |lever| lever.name == :gc }

    assert_equal [evidence.gc_pause_ms], [collection.predicted_pause_ms].compact
  end

  # A purge collects nothing before it trims, if it leaves :gc out.
  both_allocators "a dry run predicts what a purge returns that leaves the collection out" do |preload|
    skip_under_sanitizer
    settings = { preload: preload, env: ForecastTest::NEVER, requires: ["json"] }
    left_out, predicted, returned, garbage = child_json(<<~RUBY, **settings)
      Memscope.const_get(:Native).define_singleton_method(:gc_pause_ms) { 650.0 }
      Memscope.purge
      GC.disable
      20_000.times { "y" * 5000 }
      forecast = Memscope.purge(dry_run: true)
      sum = ->(result, figure) { result.levers.reject { _1.name == :gc }.sum { _1.public_send(figure).to_i } }
      puts JSON.generate([forecast.left_out.keys, sum[forecast, :predicted_max_bytes], sum[Memscope.purge, :returned_bytes],
                          Memscope.doctor.find { |found| found.id == :possible_garbage }.affected_bytes])
    RUBY

    assert_includes left_out, "gc"
    assert_operator garbage, :>, 90 * MIB
    assert_in_delta returned, predicted, 4 * MIB
  end

  # Whatever the machine is, and however busy: what decides is the prediction.
  def test_a_large_heap_is_left_alone_unless_named
    levers, named, left_out, table = child_json(<<~RUBY, requires: %w[json])
      Memscope.const_get(:Native).define_singleton_method(:gc_pause_ms) { 650.0 }
      result = Memscope.purge
      puts JSON.generate([result.levers.map(&:name), Memscope.purge(:gc).levers.map(&:name), result.left_out,
                          Memscope.purge(dry_run: true).to_s])
    RUBY

    assert_empty levers & %w[gc compact]
    assert_equal ["gc"], named
    assert_equal "left out: it would stop Ruby for about 650 ms", left_out["gc"]
    assert_match(/^ +[\d.]+ +[\d.]+  gc, which stops Ruby for about 650 ms$/, table)
    assert_match(/^  gc: left out: it would stop Ruby for about 650 ms\. Name it to run it/, table)
  end
end
