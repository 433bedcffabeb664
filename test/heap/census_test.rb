# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"
require "memscope/heap/census"

class CensusTest < MemscopeTest
  Census = Memscope::Census

  def self.row(name, count, slot_bytes, memsize_bytes, old_count = 0)
    { name: name, count: count, slot_bytes: slot_bytes, memsize_bytes: memsize_bytes, old_count: old_count }
  end

  BEFORE = [row("String", 10, 400, 1_000, 4), row("Order", 2, 80, 100), row("Gone", 1, 40, 40)].freeze
  AFTER = [row("String", 12, 480, 900, 9), row("Order", 7, 280, 9_100, 1), row("New", 3, 120, 120)].freeze

  def census(classes = BEFORE, envelope: nil, **given)
    Census.capture({ total_count: classes.sum { |row| row[:count] }, total_slot_bytes: classes.sum { _1[:slot_bytes] },
                     total_memsize_bytes: classes.sum { _1[:memsize_bytes] },
                     total_old_count: classes.sum { _1[:old_count] }, classes: classes.map(&:dup), types: [],
                     imemos: [], slot_sizes: [self.class.row("40", 13, 520, 1_140)], ages: [], collected: true,
                     gc_count: 3, walked_in: :process, reasons: {}, cost: Bodies.cost(tier: :T3), **given }, envelope)
  end

  # The reading's envelope, as of another process or another time.
  def envelope(of, **given) = of.envelope.merge(given)

  def test_rows_are_largest_first
    reading = Memscope.census

    Census::GROUPINGS.each do |grouping, field|
      rows = reading.by(grouping)

      assert_same reading.public_send(field), rows
      assert_equal rows.map(&:memsize_bytes).sort.reverse, rows.map(&:memsize_bytes), grouping
      assert_equal rows.map(&:name).uniq, rows.map(&:name), grouping
    end
    assert_equal %w[old young], reading.by(:age).map(&:name).sort
  end

  def test_wrong_arguments
    error = assert_raises(ArgumentError) { census.by("class") }

    assert_equal 'Memscope::Census#by: grouping: given "class", allowed: :class, :type, :imemo, :slot_size, :age',
                 error.message
    error = assert_raises(ArgumentError) { Memscope.census(gc: nil) }

    assert_equal "Memscope.census: gc: given nil, allowed: true, false", error.message
    error = assert_raises(ArgumentError) { Memscope.census(private: 1) }

    assert_equal "Memscope.census: private: given 1, allowed: true, false", error.message
    assert_raises(TypeError) { census - Memscope.snapshot }
    assert_raises(TypeError) { Memscope.snapshot - census }
  end

  def test_comes_back_from_json
    reading = Memscope.census

    assert_equal reading, Census.from_json(reading.to_json)
    growth = Memscope.census - reading

    assert_equal growth, Memscope::Diff.from_json(growth.to_json)
    assert_equal %w[diff census], JSON.parse(growth.to_json).values_at("kind", "of")
  end

  def test_what_grew
    growth = census(AFTER) - census

    assert_equal(%w[Order New Gone String], growth.by(:class).map(&:name))
    order = growth.dig(:class, "Order")

    assert_equal [100, 9_100, 9_000], [order.before, order.after, order.change]
    assert_equal [5, 200, 9_000, 1, 7], [*%i[count slot_bytes memsize_bytes old_count].map do |name|
      order[name].change
    end,
                                         order[:count].after]
    assert_equal([-40, -1, 0], growth.dig(:class, "Gone").then do |gone|
      [gone.change, gone[:count].change, gone.after]
    end)
    assert_empty growth.by(:slot_size), "what did not change"
    assert_equal([9, 360, 8_980], %i[total_count total_slot_bytes total_memsize_bytes].map do |name|
      growth[name].change
    end)
    assert_match(/has no :classes; allowed: :total_count, .*:class, :type/,
                 assert_raises(KeyError) { growth.by(:classes) }.message)
  end

  def test_what_a_growth_cannot_know
    earlier = census

    assert_equal 0, (census(AFTER) - earlier)[:gc_count].change
    assert_match(/no GC ran in between/, (census(AFTER) - earlier).reasons[:collections])
    growth = census(AFTER, gc_count: 5) - census(collected: false)

    assert_equal 2, growth[:gc_count].change
    assert_match(/it is not known which objects are new/, growth.reasons[:collections])
    assert_equal "the earlier census counted garbage too; --gc (gc: true) collects it first", growth.reasons[:count]
    refute_includes (census(AFTER) - earlier).reasons, :count
  end

  def test_growth_between_processes_and_back_in_time
    earlier = census
    other = census(AFTER, envelope: envelope(earlier, pid: earlier.pid + 1))
    reused = census(AFTER, envelope: envelope(earlier, process: { started: 1 }))

    assert_equal earlier.pid, (other - earlier).earlier_pid
    assert_match(/it is not known which objects are new/, (other - earlier).reasons[:collections])
    [other, reused].each do |later|
      assert_equal "the earlier reading is of another process, pid #{earlier.pid}", (later - earlier).reasons[:pid]
    end
    before = census(AFTER, envelope: envelope(earlier, at: ((earlier.at.to_f - 60) * 1000).to_i))

    assert_match(/the subtracted reading is the later one/, (before - earlier).reasons[:seconds])
    assert_operator (before - earlier).seconds, :<, 0
  end

  def test_an_unknown_census_has_no_growth
    unknown = census([], total_count: nil, total_slot_bytes: nil, total_memsize_bytes: nil, total_old_count: nil,
                         gc_count: nil, slot_sizes: [], reasons: { total_count: :census_beside_ractors })
    [unknown - census, census - unknown].each do |growth|
      assert_equal [nil, nil], [growth[:total_count].change, growth[:gc_count].change]
      assert_equal "other Ractors are alive: objects cannot be walked", growth.reasons[:total_count]
      refute_match(/Order/, growth.to_s)
    end
  end

  def test_planted_growth_is_found_to_the_object
    name, count, slots, collections, first = child_json(<<~RUBY)
      require "json"
      class Leaked; def initialize = @text = "x" * 200; end
      before = Memscope.census(gc: true)
      KEPT = Array.new(2_000) { Leaked.new }
      growth = Memscope.census(gc: true) - before
      row = growth.dig(:class, "Leaked")
      puts JSON.generate([row.name, row[:count].change, row[:slot_bytes].change, growth[:gc_count].change,
                          growth.by(:class).first.name])
    RUBY

    assert_equal ["Leaked", 2_000, 80_000, "String"], [name, count, slots, first]
    assert_operator collections, :>=, 1
  end

  def test_garbage_is_collected_on_request
    before, after, collected = child_json(<<~RUBY)
      require "json"
      class Dropped; end
      GC.disable
      10_000.times { Dropped.new }
      readings = [Memscope.census, Memscope.census(gc: true)]
      puts JSON.generate([*readings.map { |one| one.by(:class).find { |row| row.name == "Dropped" }&.count.to_i },
                          readings.map(&:collected?)])
    RUBY

    assert_equal [10_000, [false, true]], [before, collected]
    assert_operator after, :<=, 2
  end

  # GC.start switches to other threads at its end if its thread has run for long; here, while a finalizer sleeps.
  def test_garbage_that_another_thread_leaves_after_the_collection_is_collected_too
    finalized, counts = child_json(<<~RUBY)
      require "json"
      class Dropped; end
      finalized = 0
      wait = proc { finalized += 1; sleep 0.005 }
      GC.disable # no collection of the other thread's own runs the finalizers
      Thread.new { loop { 100.times { Dropped.new }; sleep 0.001 } }
      counts = Array.new(3) do
        20.times { ObjectSpace.define_finalizer(Object.new, wait) }
        Memscope.census(gc: true).by(:class).find { |row| row.name == "Dropped" }&.count.to_i
      end
      puts JSON.generate([finalized, counts])
    RUBY

    assert_operator finalized, :>=, 30
    assert_operator counts.max, :<=, 5
  end
end
