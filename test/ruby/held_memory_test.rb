# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/value/quantity"

# What objects report holding, read without holding the GVL for long: types with slow size functions are left out.
class HeldMemoryTest < MemscopeTest
  GVL_LIMIT_US = 25_000

  # The time under the GVL for a ledger's objects, the best of nine runs; in the thread's CPU time, since other
  # processes run during this test.
  MEASURE = <<~RUBY
    require "json"

    def thread_us(**options)
      Array.new(9) do
        start = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :microsecond)
        Memscope.ledger(**options)
        Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :microsecond) - start
      end.min
    end

    def gvl_us = thread_us(objects: true) - thread_us
  RUBY

  def test_a_type_with_a_slow_size_function_is_left_out
    answer = child_json(<<~RUBY, requires: ["memscope_test"])
      #{MEASURE}
      quick = Array.new(1_000) { Host.sized(1 << 20, 0) }
      plain = gvl_us
      held = Memscope.ledger(objects: true).held_by_objects_bytes
      slow = Array.new(20_000) { Host.sized(1 << 20, 300_000) }
      extra = gvl_us - plain
      before = Host.size_calls
      ledger = Memscope.ledger(deep: true, objects: true)
      puts JSON.generate(extra: extra, asked: Host.size_calls - before - quick.size, reasons: ledger.reasons,
                         rise: ledger.held_by_objects_bytes - held, detail: ledger[:malloc].detail)
    RUBY
    reason = answer["reasons"]["held_by_objects_bytes"]

    assert_operator answer["extra"], :<=, GVL_LIMIT_US
    assert_operator answer["asked"], :<=, 100
    assert_match(/#{Memscope::Quantity.count(20_000 - answer['asked'])} of type Host::Slow\b/, reason)
    refute_match(/Quick/, reason)
    assert_operator answer["rise"], :>=, (answer["asked"] - 1) << 20
    refute_includes answer["detail"], "untracked_bytes"
  end

  # They are mapped, and a profile keeps them for the next one.
  def test_tables_of_profiles_and_measurements_are_no_malloc_memory
    grown, reason = child_json(<<~RUBY)
      require "json"
      2.times { Memscope.ledger(objects: true, deep: true) }
      before = Memscope.ledger(objects: true, deep: true).held_by_objects_bytes
      Memscope.object_profile { Array.new(100) { Object.new } }
      Memscope.measure { Array.new(100) { Object.new } }
      Memscope.malloc_profile(backend: :imports) { Array.new(100) { "x" * 1000 } }
      ledger = Memscope.ledger(objects: true, deep: true)
      puts JSON.generate([ledger.held_by_objects_bytes - before, ledger.reasons[:held_by_objects_bytes]])
    RUBY
    assert_operator grown, :<, 4 << 20
    assert_nil reason
  end

  # ObjectSpace.memsize_of_all raises what a size function raises, and its sum wraps.
  { "raises" => "2**64 - 1", "reports_more_than_can_be" => "2**62" }.each do |what, bytes|
    define_method("test_a_size_function_that_#{what}") do
      sums, reasons, errinfo = child_json(<<~RUBY, requires: %w[json memscope_test])
        broken = Array.new(5) { Host.sized(#{bytes}, 0) }
        census = Memscope.census
        graphs = %i[fork process].map { |place| Memscope.heap_graph(in: place) }
        ledger = Memscope.ledger(deep: true, objects: true)
        Memscope.dump("/proc/self/cwd/\#{$$}.dump").then { |dump| File.delete(dump.path) }
        sums = [census.total_memsize_bytes, *graphs.map(&:reachable_bytes), ledger.held_by_objects_bytes]
        reasons = [census.reasons[:memsize_bytes], *graphs.map { |graph| graph.reasons[:reachable_bytes] },
                   ledger.reasons[:held_by_objects_bytes]]
        puts JSON.generate([sums, reasons, $!])
      RUBY

      sums.each { |sum| assert_includes (1 << 10)..(1 << 28), sum }
      reasons.each { |reason| assert_match(/5 of type Host::Quick/, reason) }
      assert_nil errinfo
    end
  end

  def test_a_type_that_is_slow_for_some_objects
    extra, reason = child_json(<<~RUBY, requires: ["memscope_test"])
      #{MEASURE}
      plain = gvl_us
      mixed = Array.new(20_000) { |index| Host.sized(1, index % 5 == 0 ? 200_000 : 1) }
      puts JSON.generate([gvl_us - plain, Memscope.ledger(objects: true).reasons[:held_by_objects_bytes]])
    RUBY

    assert_operator extra, :<=, GVL_LIMIT_US
    assert_match(/of type Host::Slow\b/, reason)
  end

  # While other threads compete for the processor, even fast calls take long.
  def test_many_objects_of_a_quick_type_are_all_asked
    rise, reasons = child_json(<<~RUBY, requires: ["memscope_test"])
      require "json"
      others = Array.new(4) { fork { loop { nil } } }
      before = Memscope.ledger(objects: true).held_by_objects_bytes
      quick = Array.new(500_000) { Host.sized(1 << 20, 0) }
      ledgers = Array.new(5) { Memscope.ledger(objects: true) }
      others.each { |pid| Process.kill(:KILL, pid) }
      puts JSON.generate([ledgers.map { |ledger| ledger.held_by_objects_bytes - before }.min,
                          ledgers.map { |ledger| ledger.reasons[:held_by_objects_bytes] }])
    RUBY

    assert_operator rise, :>=, 500_000 << 20
    assert_equal [nil], reasons.uniq
  end

  def test_garbage_that_is_not_yet_swept_is_not_asked
    asked = child_json(<<~RUBY, requires: ["memscope_test"])
      200_000.times { Host.sized(1, 0) }
      GC.start(immediate_sweep: false)
      before = Host.size_calls
      Memscope.ledger(objects: true)
      puts Host.size_calls - before
    RUBY

    assert_operator asked, :<=, 100
  end

  # Each message reports the size of all arenas that its own arena was joined with.
  def test_messages_of_google_protobuf
    extra, reason = child_json(<<~RUBY, bundle: true)
      #{MEASURE}
      require "google/protobuf"
      require "google/protobuf/struct_pb"
      plain = gvl_us
      list = Google::Protobuf::ListValue.new
      values = Array.new(20_000) { |index| Google::Protobuf::Value.new(number_value: index.to_f) }
      values.each { |value| list.values << value }
      GC.start
      puts JSON.generate([gvl_us - plain, Memscope.ledger(objects: true).reasons[:held_by_objects_bytes]])
    RUBY

    assert_operator extra, :<=, GVL_LIMIT_US
    assert_match(/of type Google::Protobuf::\w+/, reason)
  end

  # Its own child has time to ask more slow functions than a walk that stops Ruby.
  def test_the_doctor_asks_slow_functions_too
    reason, held = child_json(<<~RUBY, requires: ["memscope_test"])
      require "json"
      slow = Array.new(60) { Host.sized(1 << 10, 600_000) }
      ledger = Memscope.doctor.evidence.ledger
      puts JSON.generate([ledger.reasons[:held_by_objects_bytes], ledger.held_by_objects_bytes])
    RUBY

    assert_nil reason
    assert_operator held, :>, 60 << 10
  end

  # Growth is found without the sizes, and a verdict has no gaps.
  def test_the_doctor_judges_what_needs_no_sizes
    checks, found = child_json(<<~RUBY, requires: ["memscope_test"])
      require "json"
      slow = Array.new(2_000) { Host.sized(1, 300_000) }
      since = Memscope.doctor
      Host.malloc_blocks(1_000, 100_000)
      diagnosis = Memscope.doctor(since: since)
      growth = diagnosis.find { |finding| finding.id == :in_use_growth }
      puts JSON.generate([diagnosis.checked.to_h { |check| [check.id, check.outcome] }, growth.to_h])
    RUBY

    assert_equal %w[found found inapplicable inapplicable],
                 checks.values_at("native_memory", "in_use_growth", "native_growth", "object_growth")
    refute_includes checks.values, "unknown"
    assert_in_delta 100_000_000, found["affected_bytes"], 8 << 20
    assert_match(/The sizes of objects: a lower bound that leaves out .* of type Host::Slow/, found["explanation"])
  end

  # Objects that say they hold more than there is.
  def test_blocks_decide_where_objects_say_too_much
    ledger, held, blocks = child_json(<<~RUBY, requires: ["memscope_test"])
      require "json"
      large = Array.new(50) { Host.sized(1 << 30, 0) }
      surveyed, blocks, = Memscope::Ledger.survey
      puts JSON.generate([Memscope.ledger(deep: true, objects: true).to_h, surveyed.held_by_objects_bytes,
                          blocks.all.block_bytes])
    RUBY

    refute_includes ledger["rows"].find { |row| row["id"] == "malloc" }["detail"], "untracked_bytes"
    assert_match(/more than malloc has in use/, ledger["reasons"]["untracked_bytes"])
    assert_equal blocks, held
  end

  # 300 MB of mappings are not malloc memory, and hide no leak of 60 MB beside them.
  both_allocators "mapped buffers" do |preload|
    skip_under_sanitizer
    held, grown, reason = child_json(<<~RUBY, requires: %w[json tempfile memscope_test], preload: preload)
      Warning[:experimental] = false
      file = Tempfile.new.tap { |one| one.write("m" * 1_000_000) && one.flush }
      buffers = Array.new(100) { IO::Buffer.map(file, nil, 0, IO::Buffer::READONLY) }
      since = Memscope.doctor
      buffers.concat(Array.new(200) { IO::Buffer.map(file, nil, 0, IO::Buffer::READONLY) })
      internal = IO::Buffer.new(20_000_000, IO::Buffer::INTERNAL)
      Host.malloc_blocks(1_000, 60_000)
      diagnosis = Memscope.doctor(since: since)
      puts JSON.generate([Memscope.ledger(objects: true).held_by_objects_bytes,
                          %i[native_growth object_growth].map { |id| diagnosis.find { _1.id == id }&.affected_bytes },
                          diagnosis.evidence.ledger.reasons[:buffers]])
    RUBY

    assert_includes 20_000_000..40_000_000, held
    assert_in_delta 60_000_000, grown.first, 8 << 20
    assert_in_delta 20_000_000, grown.last, 8 << 20
    assert_match(/\AIO::Buffer objects also report \d{3}\.\d MiB of mapped files/, reason)
  end

  # Hardly any of a thread's stack of 1 MiB is resident.
  def test_stacks_of_sleeping_threads
    grown = child_json(<<~RUBY, requires: %w[json memscope])
      held = -> { Memscope.ledger(objects: true).held_by_objects_bytes }
      held.call
      before = held.call
      threads = Array.new(100) { Thread.new { sleep } }
      Thread.pass until threads.all?(&:stop?)
      puts JSON.generate(held.call - before)
    RUBY

    assert_operator grown, :<, 8 * 1_048_576
  end
end
