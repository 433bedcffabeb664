# frozen_string_literal: true

require_relative "test_helper"
require "json"
require "memscope/loader"

# Readings from another source are either refused with a message for people, or shown like our own.
class LoaderTest < MemscopeTest
  # What replaces a value in a mutant.
  ODD = [nil, true, -1, 0, 2**70, 1e308, "", "x" * 1000, "\u202e", "\e[31m", [], {}, [[[]]], { "id" => "malloc" },
         "9" * 21, { "bytes" => -1 }].freeze
  MUTANTS = 200

  def readings
    [Memscope.ledger(deep: true, objects: true), Memscope.snapshot(malloc: true), Memscope.arenas, Memscope.ruby_heap,
     Memscope.doctor, Memscope.lint, Memscope.allocator, Memscope.mappings, Memscope.process_memory, Memscope.cgroup,
     Memscope.workers, Memscope.fragmentation, Memscope.purge(dry_run: true), profile]
  end

  def profile = Memscope.malloc_profile(backend: :imports, rate: 1024) { @kept = Array.new(50) { "x" * 5000 } }

  def mutant(value, random)
    return ODD.sample(random: random) if random.rand < 0.15 || !value.respond_to?(:each) || value.empty?
    return value.merge(value.keys.sample(random: random).then { |key| { key => mutant(value[key], random) } }) if
      value.is_a?(Hash)

    value.dup.tap { |list| random.rand(list.size).then { |index| list[index] = mutant(list[index], random) } }
  end

  def test_what_is_accepted_can_be_shown
    skip_under_sanitizer
    random = Random.new(1)
    accepted = readings.sum do |reading|
      given = JSON.parse(reading.to_json)
      Array.new(MUTANTS) { mutant(given, random) }.count { |hash| shown?(reading, hash) }
    end

    assert_operator accepted, :>, 100
  end

  # Every byte of the given values could end up in a message.
  def test_messages_are_short_and_valid
    long = { "x" * 1_000_000 => 1, 10**400 => "\xff", nil => ["y"] * 100_000 }
    calls = [-> { Memscope::Ledger.from_h(long) }, -> { Memscope::Ledger.from_h({ **good, "pid" => -(10**5000) }) },
             -> { Memscope::Ledger.from_h({ **good, "reasons" => { "k" * 100_000 => 1 } }) },
             -> { Memscope::Profile.from_json("\xff") }, -> { Memscope::Profile.from_json("\x80" * 100_000) },
             -> { Memscope::Diagnosis.from_json("\xfe\xff") }, -> { Memscope.ledger(deep: "z" * 1_000_000) },
             -> { Memscope.size_classes(arena: false) }, -> { Memscope.size_classes(arena: 0..) },
             -> { Memscope.tag("t" * 1_000_000) { 1 } }, -> { Memscope.purge("l" * 1_000_000) },
             -> { Memscope.configure { |c| c.listen = "/run".encode("UTF-16LE") } },
             -> { Memscope.doctor(since: mute) }]
    messages = calls.map { |call| assert_raises(ArgumentError, &call).message }

    messages.each do |message|
      assert_predicate message, :valid_encoding?
      assert_operator message.bytesize, :<, 1500, message[0, 300]
    end
    assert_match(/since: given a #<Class/, messages.last)
    assert_match(/\AMemscope::Ledger\.from_h: pid: given an Integer of \d+ bits, allowed/, messages[1])
  end

  def test_the_path_to_what_is_wrong
    rows = good["rows"].map(&:dup)
    rows[1] = { **rows[1], "children" => [{ **rows[1], "bytes" => "many" }] }
    error = assert_raises(ArgumentError) { Memscope::Ledger.from_h({ **good, "rows" => rows }) }

    assert_equal 'Memscope::Ledger.from_h: rows[1].children[0].bytes: given "many", allowed: an Integer, in bytes',
                 error.message
  end

  private

  def good = @good ||= JSON.parse(Memscope.ledger.to_json)

  # An object that cannot even be inspected.
  def mute = Class.new { def inspect = raise("no") }.new

  def shown?(reading, hash)
    loaded = reading.class.from_h(hash)
    loaded.to_s
    loaded.inspect
    loaded.to_json
    difference(loaded, reading)
    true
  rescue ArgumentError => e
    raise unless e.message.match?(/\A#{reading.class}.from_h\b.*allowed: /)

    false
  end

  # A profile of another process, rate or backend is refused.
  def difference(loaded, reading)
    loaded - reading
  rescue TypeError, ArgumentError => e
    raise unless e.message.start_with?("Memscope::")
  end
end
