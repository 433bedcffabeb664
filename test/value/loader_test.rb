# frozen_string_literal: true

require_relative "../test_helper"
require "json"
require "memscope/value/loader"
require_relative "../support/groups"
require_relative "../support/histories"
require_relative "../support/planted_history"
require_relative "../support/profiles"

# Readings from another source are either refused with a message for people, or shown like our own.
class LoaderTest < MemscopeTest
  # What replaces a value in a mutant; :drop takes it away.
  ODD = [nil, true, -1, 0, 2**70, 10**400, 0.5, 1e308, -1e308, "", "x" * 1000, "malloc", "9" * 21, "a\xff", "x\n\ty",
         "\0\a\e[31m\r\u0085\u061c\u200e\u2028\u202e\u2066", "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z",
         [], [nil], [-1], [1.5], [["a", 1]], {}, { "id" => "malloc" }, { "1" => { "b" => nil } }, :drop].freeze
  # How many mutants of each reading, and how many values of a mutant are odd.
  MUTANTS = Integer(ENV.fetch("MEMSCOPE_MUTANTS", "30"))
  FORMATS = %i[to_s inspect to_json to_html to_markdown to_pprof to_speedscope sentence].freeze
  HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/

  def readings
    [Memscope.ledger(deep: true, objects: true), Memscope.snapshot(malloc: true), Memscope.arenas, Memscope.ruby_heap,
     Memscope.doctor, Memscope.lint, Memscope.allocator, Memscope.mappings, Memscope.process_memory, Memscope.cgroup,
     Memscope.workers, Memscope.fragmentation, Memscope.purge(dry_run: true), Memscope.size_classes, *of_objects,
     *over_time, *profiles, *decided]
  end

  def of_objects
    census = Memscope.census
    tags = Memscope.tag("a") { Memscope.tags }
    [census, Memscope.census - census, Memscope.heap_graph(top: 3, strings: true, paths_to: self.class), tags,
     Memscope.measure { @kept = Array.new(9) { Object.new } }, *Memscope.workers.first,
     Memscope.ledger - Memscope.ledger]
  end

  def over_time
    week = PlantedHistory.week
    history = week.to_h
    history[:curves].flat_map { |curve| curve[:rings] }.each do |ring|
      ring.update(ring.slice(:min, :last).transform_values { |samples| samples.first(3) })
    end
    [Memscope::History.from_h(history), Histories.judge(5) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour } }]
  end

  def profiles
    objects = Profiles.objects(20, 3)
    malloc = Memscope.malloc_profile(backend: :imports, rate: 1024) { @kept = Array.new(50) { "x" * 5000 } }
    [objects, malloc, objects - objects, malloc - malloc]
  end

  def decided
    groups = Groups.take(1900, workers: { 1 => { leak: 200 } })
    [groups.last, Memscope::Policy.new.decide(groups)]
  end

  # Mutants differ in one value from what a reading wrote.
  def test_what_is_accepted_can_be_shown
    skip_under_sanitizer
    random = Random.new(Integer(ENV.fetch("MEMSCOPE_SEED", "1")))
    accepted = readings.sum do |reading|
      reading, given = shortened(reading.class, JSON.parse(reading.to_json))
      mutants = places(given).product(ODD).sample(MUTANTS, random: random)
      mutants.count { |place, odd| shown?(reading, mutant(given, place, odd)) }
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

  # A report of a worker whose role has an invalid byte, and a name in another encoding.
  def test_symbols_of_any_bytes
    worker = JSON.parse(Memscope.workers.first.to_json)

    assert_raises(ArgumentError) { Memscope::Worker.from_h({ **worker, "role" => "wor\xffker" }) }
    assert_raises(ArgumentError) { Memscope::Ledger.from_h({ **good, "rows\xff" => [] }) }
    %w[\xff あ].each do |name|
      row = Memscope::Ledger::Row.from_h({ **good["rows"].first, "id" => name.encode("UTF-8", invalid: :replace).b })

      assert_predicate row.to_json, :valid_encoding?
    end
  end

  # Hashes of Hashes, of which some have names of byte counts.
  def test_tables_of_numbers
    worker = Memscope.workers.first
    whole = worker.with(arenas: { allocated_bytes: { 0 => 4096 } }, policy_decisions: { restart: { executed: 2 } })
    given = JSON.parse(whole.to_json)

    assert_equal whole, Memscope::Worker.from_h(given)
    [4096, [4096], { "0" => "4096" }, { "0" => nil }, { "0" => { "1" => 4096 } }].each do |level|
      odd = { **given, "arenas" => { "allocated_bytes" => level } }
      error = assert_raises(ArgumentError) { Memscope::Worker.from_h(odd) }

      assert_match(/\AMemscope::Worker.from_h: arenas.allocated_bytes: given .*, allowed: a Hash of numbers\z/,
                   error.message)
    end
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

  # A short form of the JSON, with two items in each list, or with few in those without which it does not load.
  def shortened(kind, given)
    short = with_two(given)
    shorten(kind, short = given) unless loads?(kind, short)
    [kind.from_h(short), short]
  end

  def with_two(part)
    case part
    when Hash then part.transform_values { |value| with_two(value) }
    when Array then part.first(2).map { |value| with_two(value) }
    else part
    end
  end

  def shorten(kind, given, part = given)
    case part
    when Hash then part.each_value { |value| shorten(kind, given, value) }
    when Array
      whole = part.dup
      part.slice!(2..)
      part.size == whole.size || loads?(kind, given) || part.replace(whole)
      part.each { |value| shorten(kind, given, value) }
    end
  end

  def loads?(kind, given)
    kind.from_h(given)
  rescue ArgumentError
    false
  end

  # The paths to all values; of those in lists, to the first with each key.
  def places(value, place = [], seen = {})
    pattern = [place.grep(String), value.class]
    return [] if seen[pattern] && place.any?

    seen[pattern] = true
    inner = value.is_a?(Array) ? value.each_index.zip(value) : Hash.try_convert(value).to_a
    [*([place] if place.any?), *inner.flat_map { |key, item| places(item, [*place, key], seen) }]
  end

  def mutant(value, place, odd)
    step, *further = place
    changed = value.dup
    if further.any? then changed[step] = mutant(value[step], further, odd)
    elsif odd != :drop then changed[step] = odd
    else changed.is_a?(Hash) ? changed.delete(step) : changed.delete_at(step)
    end
    changed
  end

  def shown?(reading, hash)
    loaded = reading.class.from_h(hash)
    shown = FORMATS.filter_map { |format| loaded.public_send(format) if loaded.respond_to?(format) }.grep(String)
    shown.each { |text| refute_match HIDDEN, text if text.encoding == Encoding::UTF_8 }
    differences(loaded, reading)
    true
  rescue ArgumentError => e
    raise unless e.message.match?(/\A#{reading.class}.(from_h|new)\b.*allowed: /m)

    false
  end

  # A profile of another process, rate or backend is refused.
  def differences(loaded, reading)
    [[loaded, reading], [reading, loaded]].each { |later, earlier| (later - earlier).to_s } if reading.respond_to?(:-)
  rescue TypeError, ArgumentError => e
    raise unless e.message.start_with?("Memscope::")
  end
end
