# frozen_string_literal: true

require_relative "test_helper"
require "stringio"

class MemscopeFacadeTest < MemscopeTest
  READINGS = {
    allocator: Memscope::Allocator, snapshot: Memscope::Snapshot, ledger: Memscope::Ledger,
    ruby_heap: Memscope::RubyHeap, process_memory: Memscope::ProcessMemory, cgroup: Memscope::Cgroup
  }.freeze

  # Bytes: the kernel updates RSS counters late.
  MARGIN = 4 * 1_048_576

  def test_each_call_returns_its_reading
    READINGS.each do |call, type|
      reading = Memscope.public_send(call)

      assert_instance_of type, reading
      assert_equal [call.to_s, Process.pid, Memscope::VERSION], [reading.kind, reading.pid, reading.memscope]
      assert_equal reading, type.from_h(JSON.parse(reading.to_json))
    end
  end

  # A field that the extension does not fill, or a key that no field takes, would go unnoticed otherwise.
  def test_the_extension_fills_exactly_the_fields_of_each_reading
    native = Memscope.const_get(:Native)
    bodies = { allocator: [], snapshot: [false], ruby_heap: [false, true, nil], process_memory: ["self"],
               ledger: [false] * 4, cgroup: %w[self /proc /sys/fs/cgroup] }

    added = { ledger: %i[allocator collected garbage_max_bytes], allocator: %i[settings] }

    bodies.each do |call, arguments|
      expected = READINGS[call].body_names - added.fetch(call, [])

      assert_equal expected.sort, native.public_send(call, *arguments).keys.sort, call
    end

    assert_empty native.allocator_settings[:settings].map(&:keys).uniq - [Memscope::Allocator::Setting.fields.map(&:name)]
  end

  def test_rss
    before = Memscope.rss
    ledger = Memscope.ledger.rss_bytes
    least, most = [before, Memscope.rss].minmax

    assert_includes (least - MARGIN)..(most + MARGIN), ledger, "what they say before or after, or in between"
  end

  def test_report
    skip_under_sanitizer
    io = StringIO.new

    assert_nil Memscope.report(io)
    assert_match(/\Amemscope 0\.1\.0 . ruby #{RUBY_VERSION} . .* serves malloc \(proved\) . pid #{Process.pid}$/,
                 io.string)
    assert_output(/= RSS of this reading/) { Memscope.report(strict: true) }
  end

  def test_unknown_keywords_are_refused
    assert_raises(ArgumentError) { Memscope.ledger(strcit: true) }
    assert_raises(ArgumentError) { Memscope.snapshot(glibc: true) }
    assert_raises(ArgumentError) { Memscope.report($stdout, strcit: true) }
  end

  def test_wrong_types_are_refused
    { ledger: %i[deep shared objects strict], snapshot: %i[malloc] }.each do |call, keywords|
      keywords.product(["yes", nil]).each do |keyword, given|
        error = assert_raises(ArgumentError) { Memscope.public_send(call, keyword => given) }
        assert_equal "Memscope.#{call}: #{keyword}: given #{given.inspect}, allowed: true, false", error.message
      end
    end
    assert_raises(ArgumentError) { Memscope.report(StringIO.new, objects: 1) }
  end

  # Whatever is given: an error that names the argument, in a few words of valid text.
  ODD = [-1, 2**64, 10**400, -0.5, Float::NAN, 1i, "", "\0", "\xff", "x" * 1_000_000, "gc".encode("UTF-16LE"), [], {},
         :none, Object.new, Class].freeze

  def test_odd_values_are_refused
    skip_under_sanitizer
    keywords = { ledger: %i[deep shared objects strict gc garbage], snapshot: %i[malloc], ruby_heap: %i[collect],
                 size_classes: %i[arena], doctor: %i[gc], purge: %i[dry_run gc],
                 tune: %i[dirty_decay_ms muzzy_decay_ms background_thread], listen: %i[path] }

    keywords.each { |call, names| names.product(ODD) { |name, value| assert_odd(call, name, value) } }
  end

  def assert_odd(call, name, value)
    error = assert_raises(ArgumentError, "#{call} #{name}") { Memscope.public_send(call, name => value) }

    assert_predicate error.message, :valid_encoding?
    assert_operator error.message.bytesize, :<, 1_500
    assert_match(/\b#{name}: given .*, allowed: /m, error.message)
  end

  def test_supported
    assert_predicate Memscope, :supported?
    assert_nil Memscope.unsupported_reason
  end

  def test_readings_in_a_trap_handler
    ran = ChildProcess.run(<<~'RUBY', requires: %w[memscope memscope/value/diff memscope/show/report json stringio])
      trap("USR1") do
        readings = %i[allocator snapshot ledger ruby_heap process_memory cgroup].map { |call| Memscope.public_send(call) }
        readings.each { |reading| (reading - reading).to_h }
        readings.each(&:to_json)
        Memscope.report(StringIO.new)
        puts "read #{readings.size}, #{Memscope.rss.positive?}"
      end
      Process.kill(:USR1, Process.pid)
      sleep 0.1
    RUBY

    assert_equal "read 6, true\n", ran.out, ran
  end

  def test_loads_neither_json_nor_a_surface
    loaded = ChildProcess.run(<<~RUBY).out.lines.map(&:chomp)
      before = $LOADED_FEATURES.dup
      require "memscope"
      Memscope.rss; Memscope.allocator; Memscope.snapshot; Memscope.ledger - Memscope.ledger
      puts $LOADED_FEATURES - before
    RUBY

    assert_empty loaded.grep_v(%r{/memscope})
    assert_empty loaded.grep(%r{/memscope/.*(?:report|cli|tasks|railtie|loader|absent)})
  end
end
