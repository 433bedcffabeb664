# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"

class DiffTest < MemscopeTest
  # A reading with each kind of number.
  class Meter < Memscope::Reading
    field :rss_bytes, :bytes, true
    field :faults, :count, true, counters: true
    field :gc, :hash, true, counters: %i[count]
    field :name, :string, true
  end

  AT = Time.utc(2026, 11, 21, 2, 0, 0).to_i * 1000

  def envelope(seconds: 0, pid: 4711)
    { memscope: Memscope::VERSION, ruby: "3.1.2", pid: pid, at: AT + (seconds * 1000).to_i }
  end

  def meter(seconds: 0, pid: 4711, **given)
    Meter.capture({ name: "m", reasons: {}, cost: Bodies.cost, **given }, envelope(seconds: seconds, pid: pid))
  end

  def ledger(rows, seconds: 0)
    Memscope::Ledger.capture(Bodies.ledger(rows: rows), envelope(seconds: seconds))
  end

  def numbers(change)
    [change.before, change.after, change.change]
  end

  def test_numbers
    diff = meter(seconds: 2.5, rss_bytes: 100, faults: 12) - meter(rss_bytes: 300, faults: 10)

    assert_equal [300, 100, -200], numbers(diff[:rss_bytes])
    assert_equal [10, 12, 2], numbers(diff[:faults])
    refute_predicate diff[:rss_bytes], :counter?
    assert_predicate diff[:faults], :counter?
    assert_in_delta 2.5, diff.seconds
    assert_equal %w[diff meter], [diff.kind, diff.of]
  end

  def test_numbers_in_tables
    diff = meter(gc: { count: 5, heaps: { 0 => { slots: 7 } }, state: "none" }) -
           meter(gc: { count: 2, heaps: { 0 => { slots: 9 } }, state: "none" })

    assert_equal [2, 5, 3], numbers(diff.dig(:gc, :count))
    assert_predicate diff.dig(:gc, :count), :counter?
    assert_equal [9, 7, -2], numbers(diff.dig(:gc, :heaps, 0, :slots))
    assert_equal %w[count heaps], diff[:gc].rows.map(&:name)
  end

  def test_what_is_unknown_in_either_has_no_delta
    diff = meter(rss_bytes: 100, gc: { count: 1 }) - meter(faults: 1)

    assert_equal [nil, 100, nil], numbers(diff[:rss_bytes])
    assert_equal [1, nil, nil], numbers(diff[:faults])
    assert_equal [nil, 1, nil], numbers(diff.dig(:gc, :count))
  end

  def test_rows_that_appear_or_vanish_count_as_zero
    diff = ledger([Bodies.row(:malloc, "malloc", 3, children: [Bodies.row(:in_use, "in use", 3)]),
                   Bodies.row(:jit, "YJIT", 5)], seconds: 1) -
           ledger([Bodies.row(:malloc, "malloc", 1), Bodies.row(:stacks, "stacks", 1)])
    mebibyte = Bodies::MEBIBYTE

    assert_equal %w[jit malloc stacks], diff.by(:rows).map(&:name)
    assert_equal [0, 5 * mebibyte, 5 * mebibyte], numbers(diff.dig(:rows, :jit))
    assert_equal [mebibyte, 0, -mebibyte], numbers(diff.dig(:rows, :stacks))
    assert_equal [0, 3 * mebibyte, 3 * mebibyte], numbers(diff.dig(:rows, :malloc, :in_use))
    assert_equal 6 * mebibyte, diff[:rss_bytes].change
  end

  def test_rows_of_a_ledger_that_could_not_be_read_are_unknown
    read = ledger([Bodies.row(:malloc, "malloc", 3, children: [Bodies.row(:in_use, "in use", 3)])])
    unread = Memscope::Ledger.capture(Bodies.ledger(rows: [], rss_bytes: nil, source: :none), envelope)
    three = 3 * Bodies::MEBIBYTE

    [[read - unread, [nil, three, nil]], [unread - read, [three, nil, nil]]].each do |diff, expected|
      assert_equal expected, numbers(diff.dig(:rows, :malloc))
      assert_equal expected, numbers(diff.dig(:rows, :malloc, :in_use))
      refute_match(/malloc/, diff.to_s)
      assert_equal diff, Memscope::Diff.from_h(JSON.parse(diff.to_json))
    end
  end

  def test_slot_sizes_are_paired_by_their_size
    heap = lambda do |live|
      Memscope::RubyHeap.capture({ pages: 1, slot_sizes: [{ slot_size: 40, live_slots: live }], reasons: {},
                                   cost: Bodies.cost })
    end

    assert_equal 3, (heap.call(10) - heap.call(7)).dig(:slot_sizes, 40, :live_slots).change
  end

  def test_another_kind_is_refused
    error = assert_raises(TypeError) { meter - ledger([]) }
    assert_equal "DiffTest::Meter - Memscope::Ledger: only readings of one kind can be subtracted", error.message
    assert_raises(TypeError) { meter - 1 }
  end

  def test_another_process_is_noted
    diff = meter(pid: 2, reasons: { later: "b" }) - meter(pid: 1, reasons: { earlier: "a" })

    assert_equal [1, 2], [diff.earlier_pid, diff.pid]
    assert_equal({ earlier: "a", later: "b", pid: "the earlier reading is of another process, pid 1" }, diff.reasons)
  end

  def test_a_change_that_is_not_there_is_refused
    error = assert_raises(KeyError) { (meter(rss_bytes: 1) - meter(rss_bytes: 1))[:rss] }
    assert_equal "Memscope::Diff has no :rss; allowed: :rss_bytes, :faults", error.message
  end

  def test_comes_back_from_json
    [meter(gc: { heaps: { 0 => { slots: 7 } } }) - meter, ledger(Bodies.storm_rows) - ledger([])].each do |diff|
      assert_equal diff, Memscope::Diff.from_h(JSON.parse(diff.to_json))
    end
  end

  def test_text_of_numbers
    diff = meter(seconds: 12.34, rss_bytes: 5000, faults: 1, gc: { count: 5 }) -
           meter(rss_bytes: 9096, faults: 1, gc: { count: 2 })

    assert_equal <<~TEXT, diff.to_s
      memscope 0.1.0 · meter of pid 4711 · 12.3 s later

              -4,096 B  rss_bytes
                  +3    gc.count
    TEXT
    assert_match(/^  nothing changed$/, (meter - meter).to_s)
  end

  def test_text_of_rows
    later = ledger([Bodies.row(:malloc, "malloc", 3, children: [Bodies.row(:in_use, "in use", 3)]),
                    Bodies.row(:jit, "YJIT", 0.01)])

    assert_equal <<~TEXT, (later - ledger([Bodies.row(:stacks, "stacks", 1)])).to_s
      memscope 0.1.0 · ledger of pid 4711 · 0.0 s later

                 MiB
                +3.0  malloc
                +3.0   └─ in use
                -1.0  stacks
                +2.0  = the change of RSS
    TEXT
  end

  def test_real_readings
    %i[allocator snapshot ledger ruby_heap process_memory cgroup].each do |call|
      diff = Memscope.public_send(call) - Memscope.public_send(call)

      assert_equal diff, Memscope::Diff.from_h(JSON.parse(diff.to_json)), call
      assert_kind_of String, diff.to_s
    end
  end
end
