# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"

class ReadingTest < MemscopeTest
  # One field of each type.
  class Sample < Memscope::Reading
    class Part < Memscope::Record
      field :name, :symbol, false, one_of: %i[left right]
      field :weight, :number, true
      field :extra_bytes, :bytes, true, sparse: true
    end

    field :size_bytes, :bytes, true
    field :change_bytes, :signed_bytes, true
    field :hits, :count, true, counters: true
    field :name, :string, true
    field :ready, :boolean, false
    field :table, :hash, true
    field :list, :list, true
    field :part, Part, true
    field :parts, [Part], false
  end

  BODY = {
    size_bytes: 4096, change_bytes: -1, hits: 3, name: "näme", ready: true,
    table: { count: 1, 0 => { slot_size: 40 }, state: :none, ratio: 0.5, none: nil }, list: [1, "two", { three: 3 }],
    part: { name: :left, weight: 1.5 }, parts: [{ name: :right, weight: 2, extra_bytes: 5 }],
    reasons: { table: "coarse" }, cost: Bodies.cost
  }.freeze

  def sample(**given)
    Sample.capture(BODY.merge(given))
  end

  def parsed(reading, **options)
    JSON.parse(reading.to_json, **options)
  end

  def assert_refused(message, **given)
    error = assert_raises(ArgumentError) { Sample.from_h(sample.to_h.merge(given)) }
    assert_match message, error.message
  end

  def test_readers
    reading = sample

    assert_equal 4096, reading.size_bytes
    assert_predicate reading, :ready?
    assert_equal :left, reading.part.name
    assert_equal({ table: "coarse" }, reading.reasons)
    assert_equal :T2, reading.cost.tier
    assert_equal 24_100, reading.cost.wall_us
  end

  # An object that claims to be equal to everything is none of the allowed values.
  def test_arguments_that_lie
    liar = Class.new { def ==(_other) = true }.new
    calls = [-> { Memscope::MallocProfile.start(rate: liar) }, -> { Memscope.snapshot(malloc: liar) },
             -> { Memscope.history.points(:rss, step: liar) }, -> { Memscope::Field.choice("n", liar, [1, 2]) },
             -> { Memscope.size_classes(arena: liar) }, -> { Memscope.heap_graph(top: liar) },
             -> { Memscope.configure { |settings| settings.worker_interval_seconds = liar } },
             -> { Memscope::Policy.new(readings: liar) }, -> { Memscope::History.from_h({ schema: liar }) }]

    calls.each { |call| assert_match(/given .*allowed/, assert_raises(ArgumentError, &call).message) }
  end

  def test_envelope
    before = Time.now
    reading = sample
    after = Time.now

    assert_equal ["sample", Memscope::VERSION, RUBY_VERSION, Process.pid],
                 [reading.kind, reading.memscope, reading.ruby, reading.pid]
    assert_predicate reading.at, :utc?
    assert_includes before.floor(3)..after, reading.at
    assert_equal reading.at, reading.at.floor(3)
  end

  # A pid alone is reused, and means another process in each container.
  def test_it_says_of_which_process_it_is
    own = sample.process
    forked = IO.popen("-") do |io|
      next Sample.from_json(io.read) if io

      $stdout.print(sample.to_json)
      $stdout.flush
      exit!
    end

    assert_equal [File.read("/proc/sys/kernel/random/boot_id").strip, File.stat("/proc/self/ns/pid").ino,
                  File.read("/proc/self/stat").split(") ").last.split[19].to_i],
                 [own.boot_id, own.pid_namespace, own.started]
    assert own.same_machine?(forked.process)
    refute_equal [own.started, Process.pid], [forked.process.started, forked.pid]
  end

  def test_json_of_an_older_memscope_has_no_process
    older = Sample.from_h(sample.to_h.except(:process))

    assert_nil older.process
    refute_includes older.to_h, :process
  end

  def test_two_processes_are_told_apart_as_far_as_they_are_known
    own = sample.process
    other = own.class.from_h(own.to_h.merge(started: own.started + 1))

    assert own.same?(own)
    refute own.same?(other)
    assert own.same_machine?(other)
    refute own.same_machine?(own.class.from_h(own.to_h.merge(boot_id: "another")))
    assert own.same?(own.class.from_h({}))
  end

  def test_to_h_begins_with_the_envelope_and_ends_with_reasons_and_cost
    hash = sample.to_h

    assert_equal %i[schema kind memscope ruby pid at process size_bytes], hash.keys.first(8)
    assert_equal %i[reasons cost], hash.keys.last(2)
    assert_equal 1, hash[:schema]
    assert_match(/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\z/, hash[:at])
  end

  def test_comes_back_from_json
    reading = sample

    [parsed(reading), parsed(reading, symbolize_names: true), reading.to_h].each do |hash|
      assert_equal reading, Sample.from_h(hash)
      assert_equal reading.hash, Sample.from_h(hash).hash
      assert_equal reading.to_h, Sample.from_h(hash).to_h
    end
  end

  def test_comes_back_from_json_inside_another_object
    reading = sample

    assert_equal reading, Sample.from_h(JSON.parse(JSON.generate(readings: [reading]))["readings"].first)
  end

  def test_symbols_in_tables_are_text
    assert_equal "none", sample.table[:state]
  end

  def test_keys_that_are_numbers_stay_numbers
    assert_equal({ slot_size: 40 }, Sample.from_h(parsed(sample)).table[0])
  end

  def test_a_sparse_field_is_left_out
    refute_includes sample.part.to_h, :extra_bytes
    assert_includes sample.parts.first.to_h, :extra_bytes
  end

  def test_frozen_to_the_bottom
    reading = sample

    [reading, reading.name, reading.table, reading.table[0], reading.list, reading.list.last, reading.parts,
     reading.parts.first, reading.reasons, reading.cost, reading.at].each { |value| assert_predicate value, :frozen? }
  end

  def test_a_missing_key_is_nil
    reading = Sample.capture({ ready: false, parts: [], reasons: {}, cost: Bodies.cost })

    assert_nil reading.size_bytes
    assert_equal reading, Sample.from_h(parsed(reading))
  end

  def test_bytes_that_are_no_text_become_text
    reading = sample(name: "/tmp/\xFF".b, table: { path: "\xE4".b }, reasons: { name: "\xFF".b })

    assert_equal "/tmp/\uFFFD", reading.name
    assert_equal reading, Sample.from_h(parsed(reading))
  end

  def test_equality
    at = sample.at
    same = ->(**given) { Sample.from_h(sample.to_h.merge(at: "2026-11-21T02:00:00.123Z", **given)) }

    assert_equal same.call, same.call
    refute_equal same.call, same.call(hits: 4)
    refute_equal sample, at
    assert_equal 1, [same.call, same.call].uniq.size
  end

  def test_text_of_a_kind_without_a_report
    assert_match(/\A#<ReadingTest::Sample .*>\z/, sample.to_s)
  end

  def test_inspect_is_short
    assert_match(/\A#<ReadingTest::Sample pid=\d+ at=.* size_bytes=4096 .*parts=\(1\) reasons=\(1\)>\z/, sample.inspect)
    refute_includes sample.inspect, "extra_bytes"
  end

  def test_from_h_refuses_what_is_no_hash
    [nil, [], "{}", 1].each do |given|
      error = assert_raises(ArgumentError) { Sample.from_h(given) }
      assert_equal "ReadingTest::Sample.from_h: given #{given.inspect}, allowed: a Hash as ReadingTest::Sample#to_h " \
                   "gives it", error.message
    end
  end

  def test_from_h_refuses_another_schema
    assert_refused(/from_h: schema: given 2, allowed: 1, .*a newer memscope wrote this/, schema: 2)
    assert_refused(/from_h: schema: given nil, allowed: 1, which is all that memscope 0.1.0 knows\z/, schema: nil)
    assert_refused(/schema: given "1"/, schema: "1")
  end

  def test_from_h_refuses_another_kind
    assert_refused(/from_h: kind: given "ledger", allowed: sample/, kind: "ledger")
  end

  def test_from_h_refuses_unknown_keys
    assert_refused(/from_h: given "sizes", allowed: the keys memscope, ruby, pid, at, process, size_bytes,/, sizes: 1)
    assert_refused(/from_h: given nil, allowed: a String or a Symbol as a key/, nil => 1)
  end

  def test_from_h_refuses_wrong_types
    assert_refused(/from_h: size_bytes: given -1, allowed: an Integer of 0 or more, in bytes/, size_bytes: -1)
    assert_refused(/size_bytes: given 1.5/, size_bytes: 1.5)
    assert_refused(/change_bytes: given "1", allowed: an Integer, in bytes/, change_bytes: "1")
    assert_refused(/name: given 3, allowed: a String/, name: 3)
    assert_refused(/ready: given nil, allowed: true or false/, ready: nil)
    assert_refused(/ready: given "true"/, ready: "true")
    assert_refused(/table: given \[\], allowed: a Hash/, table: [])
    assert_refused(/list: given \{\}, allowed: an Array/, list: {})
    assert_refused(/pid: given nil, allowed: an Integer of 0 or more/, pid: nil)
  end

  def test_from_h_refuses_wrong_parts_by_their_path
    assert_refused(/from_h: parts: given 1, allowed: an Array, each item a Hash as ReadingTest::Sample::Part/, parts: 1)
    assert_refused(/from_h: parts\[0\].name: given "up", allowed: left, right/, parts: [{ name: "up" }])
    assert_refused(/from_h: part.weight: given "1", allowed: an Integer or a finite Float/,
                   part: { name: "left", weight: "1" })
    assert_refused(/from_h: part: given "size", allowed: the keys name, weight, extra_bytes/, part: { size: 1 })
    assert_refused(/from_h: table.a\[1\]: given 0..1, allowed: a JSON value/, table: { a: [1, 0..1] })
    assert_refused(/from_h: reasons.a: given 1, allowed: a String/, reasons: { a: 1 })
    assert_refused(/from_h: cost.tier: given "T9", allowed: T0, T1, T2, T3/, cost: Bodies.cost(tier: "T9"))
    assert_refused(/from_h: cost: given nil/, cost: nil)
  end

  def test_from_h_refuses_what_is_no_time
    ["yesterday", "2026-11-21 02:00:00", "2026-02-30T00:00:00.000Z", "2026-13-01T00:00:00.000Z", nil, 5].each do |at|
      assert_refused(/from_h: at: given .*, allowed: a time like "2026-11-21T02:00:00.123Z"/, at: at)
    end
  end

  def test_messages_show_long_values_shortened
    assert_refused(/name: given \[1, 1.{0,70}\.\.\., allowed/, name: [1] * 1000)
  end

  def test_cannot_be_built_past_the_checks
    assert_raises(NoMethodError) { Sample.new({}) }
  end
end

class CollectionTest < MemscopeTest
  class Part < Memscope::Record
    field :name, :symbol, false
    field :extra_bytes, :bytes, true, sparse: true
  end

  class List < Memscope::Reading
    field :parts_of_it, [Part], false, parts: true
    include Memscope::Collection
  end

  PARTS = [{ name: :right, extra_bytes: 5 }.freeze, { name: :left }.freeze].freeze

  def list = List.capture({ parts_of_it: PARTS.map(&:dup), reasons: {}, cost: Bodies.cost })

  def test_it_is_enumerable_over_its_parts
    assert_equal %i[right left], list.map(&:name)
    assert_equal [2, :right], [list.each.size, list.first.name]
    same = list

    assert_same(same, same.each { |part| part })
  end

  # Enumerable's to_h would need pairs.
  def test_it_is_a_reading_all_the_same
    same = list

    assert_equal [{ name: :right, extra_bytes: 5 }, { name: :left }], same.to_h[:parts_of_it]
    assert_equal same, List.from_h(JSON.parse(same.to_json))
  end

  def test_there_is_always_a_list
    assert_raises(ArgumentError) { List.from_h({ **list.to_h, parts_of_it: nil }) }
  end
end
