# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require "memscope/show/report"

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
    assert_equal "left out: it would stop Ruby for about 210 ms; name it to run it", left_out(212.0, 0)
    assert_equal "left out: it would make up to 60.0 MiB private, which other processes share now; name it to run it",
                 left_out(20.0, 60 * MIB)
    assert_equal "left out: it would stop Ruby for about 3.9 s and make up to 60.0 MiB private, which other " \
                 "processes share now; name it to run it", left_out(3_854.0, 60 * MIB)
    assert_match(/stop Ruby for an unknown time and make an unknown amount of memory private/, left_out(nil, nil))
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
    assert_match(/\Aleft out: it would .*make up to [\d.]+ MiB private/, result["left_out"]["gc"])
    assert_operator gc["predicted_private_bytes"], :<, -MIB
    assert_operator gc["predicted_pause_ms"], :>, 0
    assert_operator gained, :>, control - (3 * MIB) # what memscope itself needs
    assert_equal [[], ["gc"]], [named["left_out"].keys, named["levers"].map { |lever| lever["name"] }]
    text = Memscope::Purge::Result.from_h(result).to_s.split.join(" ")

    assert_includes text, result["left_out"]["gc"]
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
    assert_equal read.returned_private_bytes, read.gained_bytes
    assert_match(/The machine loses \d+\.\d MiB: the process needs its own copies/, read.to_s)
    refute_match(/ returned$/, read.to_s.lines.grep(/RSS/).join)
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
    assert_equal "left out: it would stop Ruby for about 650 ms; name it to run it", left_out["gc"]
    assert_match(/^ +[\d.]+ +[\d.]+  gc, which stops Ruby for about 650 ms$/, table)
    assert_match(/^  gc: left out: it would stop/, table)
  end
end
