# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"

class MeasurementTest < MemscopeTest
  parallelize_me!

  Measurement = Memscope::Measurement
  NUMBERS = %i[allocated_objects allocated_bytes retained_objects retained_bytes].freeze

  # Calls the block twice: in the first call, Ruby fills caches, which are objects too.
  PRELUDE = "def again(&block) = Array.new(2) { Memscope.measure(&block) }.last\n"

  def measured(script, requires: [], **options)
    child_json("#{PRELUDE}#{script}", requires: ["json", *requires], **options)
  end

  def body(**given)
    { allocated_objects: 3, allocated_bytes: 120, retained_objects: 1, retained_bytes: 40, classes: [], lines: [],
      malloc_allocated_bytes: 64, malloc_retained_bytes: -16, rows: nil, peak_bytes: 1,
      reasons: {}, cost: Bodies.cost, **given }
  end

  def test_it_needs_a_block
    assert_equal "Memscope.measure: no block given", assert_raises(ArgumentError) { Memscope.measure }.message
  end

  def test_other_arguments_are_refused
    assert_raises(ArgumentError) { Memscope.measure(objects: true) { flunk } }
  end

  def test_it_survives_json_without_the_value
    found = measured(<<~RUBY)
      measurement = Memscope.measure { [Object.new] }
      copy = Memscope::Measurement.from_json(measurement.to_json)
      puts JSON.generate([copy == measurement, copy.value.inspect, measurement.value.size, measurement.frozen?,
                          measurement.to_h.keys, (measurement - copy)[:allocated_objects].change])
    RUBY

    assert_equal [true, "nil", 1, true], found.first(4)
    assert_equal 0, found.last
    assert_equal %w[schema kind memscope ruby pid at process allocated_objects allocated_bytes retained_objects
                    retained_bytes classes lines malloc_allocated_bytes malloc_retained_bytes rows peak_bytes
                    reasons cost], found[4]
  end

  # ObjectSpace.trace_object_allocations counts by itself, though it asks Ruby for lines in the same way. It does not
  # show internal objects.
  def test_objects_equal_those_of_a_full_trace
    found = measured(<<~RUBY, requires: ["objspace"])
      def work
        kept = Array.new(50) { |number| "kept \#{number}" * 9 }
        300.times { |number| [number, { number => "dead \#{number}" }] }
        kept.map(&:upcase).concat([[1, 2].product([3]), 2**80, 1.0e300, "x\#{kept}", Object.new])
      end
      traced = Hash.new(0)
      allocated = 0
      count = lambda do |object|
        place = "\#{ObjectSpace.allocation_sourcefile(object)}:\#{ObjectSpace.allocation_sourceline(object)}"
        traced["\#{place} \#{object.class}"] += 1 if place.match?(/\\A-e:[345]\\z/)
      end
      work
      GC.disable # else the trace would lose the garbage
      ObjectSpace.trace_object_allocations { work && ObjectSpace.each_object(&count) }
      GC.enable
      measurement = again do
        allocated = GC.stat(:total_allocated_objects)
        work
        allocated = GC.stat(:total_allocated_objects) - allocated
      end
      rows = Memscope.const_get(:Native).measure(true, false) { work }[1][:rows]
      rows = rows.to_h { |path, line, name, count, *| ["\#{path}:\#{line} \#{name}", count] }
      puts JSON.generate([allocated, measurement.allocated_objects, measurement.lines.sum(&:allocated_objects),
                          measurement.classes.sum(&:allocated_objects), traced, rows])
    RUBY
    allocated, *sums, traced, rows = found

    assert_equal [allocated], sums.uniq
    assert_operator allocated, :>, 1200
    assert_equal(traced, rows.reject { |name, _count| name.match?(/ (?:T_|imemo_)/) })
  end

  def test_each_object_is_counted_while_garbage_is_collected
    found = measured(<<~RUBY)
      kept = nil
      allocated = collections = nil
      work = lambda do
        collections = GC.count
        allocated = GC.stat(:total_allocated_objects)
        kept = Array.new(1000) { |number| 200.times { Object.new } && "\#{number}" }
        allocated = GC.stat(:total_allocated_objects) - allocated
        collections = GC.count - collections
        nil
      end
      work.call
      measurement = again(&work)
      by_class = measurement.classes.to_h { |row| [row.name, row.to_h.values.last(4)] }
      puts JSON.generate([allocated, measurement.allocated_objects, collections, by_class,
                          measurement.retained_objects, measurement.reasons.keys])
    RUBY
    allocated, measured, collections, by_class, retained, reasons = found

    assert_equal allocated, measured
    assert_operator collections, :>, 1
    assert_equal 200_000, by_class.fetch("Object").first
    assert_includes 0..2, by_class.fetch("Object")[2] # a word on the machine stack may look like a reference
    assert_includes 1000..1002, by_class.fetch("String")[2]
    assert_equal 1, by_class.fetch("Array")[2]
    assert_equal(retained, by_class.values.sum { |numbers| numbers[2] })
    assert_equal ["names"], reasons
  end

  # memsize_of is asked for the same objects, which are still there.
  def test_bytes_are_those_of_memsize_of
    found = measured(<<~RUBY, requires: ["objspace"])
      slot = ObjectSpace.memsize_of(Object.new)
      measurement = again do
        100.times { "x" * 1000 }
        [["y" * 5000], { 1 => "z" * 70 }, Array.new(900), (0..20).to_h { |number| [number, number] }]
      end
      all = measurement.value.flat_map { |one| [one, *(one.is_a?(Array) ? one.compact : one.values.grep(String))] }
      sizes = [measurement.value, *all].sum { |object| ObjectSpace.memsize_of(object) }
      line = measurement.lines.find { |row| row.lineno == 4 }
      puts JSON.generate([sizes, measurement.retained_bytes, line.allocated_bytes, 100 * (slot + ObjectSpace.memsize_of("x" * 1000)),
                          line.retained_bytes, line.allocated_objects])
    RUBY

    assert_includes 0..(2 * 40), found[1] - found[0] # an internal object may be kept by a word on the machine stack
    assert_equal found[2], found[3]
    assert_equal [0, 200], found.last(2)
  end

  both_allocators("a block that does nothing has allocated nothing") do |preload|
    skip_under_sanitizer
    found = measured(<<~RUBY, preload: preload)
      measurement = again { nil }
      puts JSON.generate([measurement.lines, *%i[allocated_objects retained_objects retained_bytes
                                                 malloc_allocated_bytes malloc_retained_bytes]
                                                .map { |name| measurement.public_send(name) }])
    RUBY

    assert_equal [[], 0, 0, 0, 0, 0], found
  end

  # A hidden Array gets its class when it is finished; an imemo has no class.
  def test_classes_are_those_that_objects_end_as
    found = measured(<<~RUBY)
      values = (1..40).to_a
      measurement = Memscope.measure { [values.product([1, 2]), Class.new(String).new("x")] }
      puts JSON.generate([measurement.classes.map(&:name), measurement.value[0].size])
    RUBY
    names, pairs = found

    assert_equal 80, pairs
    assert_includes names, "Array"
    assert_includes names, "String (anonymous subclass)"
    assert_includes names, "Class"
  end

  # A row keeps nothing alive that it is named after; addresses of dead classes are reused.
  def test_classes_and_files_that_end_with_the_block
    found = measured(<<~RUBY)
      work = lambda do
        100.times do |number|
          Class.new(Array).new
          eval("Object.new", nil, "file_\#{number % 5}.rb", 7)
          GC.start if number % 20 == 0
        end
        nil
      end
      work.call
      measurement = again(&work)
      puts JSON.generate([measurement.classes.to_h { |row| [row.name, row.to_h.values.last(4).values_at(0, 2)] },
                          measurement.lines.to_h { |row| [row.name, row.allocated_objects] }
                                     .select { |name, _count| name.start_with?("file_") }])
    RUBY
    classes, lines = found

    assert_equal 100, classes.fetch("Array (anonymous subclass)").first
    assert_equal 100, classes.fetch("Object").first
    assert_equal 200, classes.fetch("Class").first
    assert_operator classes.fetch("Class").last, :<=, 4
    assert_equal(Array.new(5) { |number| "file_#{number}.rb:7" }, lines.keys.sort)
  end

  def test_other_threads_are_told_apart
    found = measured(<<~RUBY)
      go, done = Queue.new, Queue.new
      Thread.new { loop { go.pop; 1234.times { Object.new }; done << 1 } }
      work = lambda do
        go << 1
        done.pop
        Fiber.new { 10.times { Hash.new } }.resume
      end
      work.call
      measurement = Memscope.measure(&work)
      puts JSON.generate([measurement.classes.to_h { |row| [row.name, row.allocated_objects] },
                          measurement.reasons[:allocated_objects]])
    RUBY

    assert_equal 10, found.first["Hash"]
    refute_includes found.first, "Object"
    assert_match(/\Aobjects that other threads allocated during the block are not counted \(1,23\d\)\z/, found.last)
  end

  # A thread that collects garbage frees that of all threads.
  def test_what_malloc_retains_has_a_reason_if_other_threads_leave_garbage
    alone, beside = measured(<<~RUBY)
      found = [again {}]
      Thread.new { loop { "x" * 10_000 } }
      found << again { GC.count.then { |begun| sleep(0.001) until GC.count > begun } }
      puts JSON.generate(found.map { |one| [one.reasons[:malloc_retained_bytes], one.malloc_retained_bytes] })
    RUBY

    assert_equal [nil, 0], alone
    assert_match(/\Acounts memory that this thread's garbage/, beside.first)
  end

  def test_a_measurement_within_another_is_refused
    found = measured(<<~RUBY)
      errors = []
      try = -> { Memscope.measure { errors << "ran" } rescue errors << "\#{$!.class}: \#{$!.message}" }
      outer = Memscope.measure { try.call; Thread.new(&try).join; 5 }
      try.call
      puts JSON.generate([*errors, outer.value])
    RUBY

    assert_match(/\AMemscope::Unavailable: a measurement is running in this thread, around/, found[0])
    assert_match(/\AMemscope::Unavailable: a measurement is running in another thread/, found[1])
    assert_equal ["ran", 5], found.drop(2)
  end

  def test_a_fiber_that_waits_within_a_block
    found = measured(<<~RUBY)
      measure = ->(&block) { Memscope.measure(&block).value }
      waiting = Fiber.new { measure.call { Fiber.yield; 5 } }
      waiting.resume
      refused = (measure.call { "ran" } rescue $!.message)
      puts JSON.generate([refused, waiting.resume, measure.call { 6 }])
    RUBY

    assert_match(/\Aa measurement is running in another fiber of this thread, which ends with its block/, found.first)
    assert_equal [5, 6], found.drop(1)
  end

  # Its address is left only in frames that are gone.
  def test_a_fiber_that_is_never_resumed_measures_no_more
    found = measured(<<~RUBY)
      leave = -> { Fiber.new { Memscope.measure { Fiber.yield } }.resume }
      Thread.new(&leave).join
      after_its_thread = again { Object.new }.allocated_objects
      deep = ->(levels) { levels.zero? ? leave.call : deep.call(levels - 1) }
      deep.call(20)
      Memscope.const_get(:Native).clear_stack
      puts JSON.generate([after_its_thread, again { Object.new }.allocated_objects])
    RUBY

    assert_equal [1, 1], found
  end

  def test_a_garbage_collection_that_a_test_has_stubbed
    found = measured(<<~RUBY)
      def GC.start(**) = nil
      measurement = again { 500.times { Object.new } }
      puts JSON.generate([measurement.allocated_objects, measurement.retained_objects])
    RUBY

    assert_equal 500, found.first
    assert_operator found.last, :<=, 1 # the machine stack may keep the last one
  end

  def test_beside_a_profile_it_is_refused_or_says_what_is_missing
    found = measured(<<~RUBY)
      Memscope::ObjectProfile.start
      objects = (Memscope.measure { } rescue $!.message)
      Memscope::ObjectProfile.stop
      Memscope::MallocProfile.start(backend: :imports)
      measurement = again { Object.new }
      Memscope::MallocProfile.stop
      within = Memscope.measure { Memscope::MallocProfile.start(backend: :imports) rescue $!.message }
      puts JSON.generate([objects, measurement.allocated_objects, measurement.malloc_allocated_bytes,
                          measurement.reasons[:malloc_retained_bytes], within.value])
    RUBY

    assert_equal "a profile of objects is running, which would be measured too: stop it first " \
                 "(Memscope::ObjectProfile.stop)", found[0]
    assert_equal [1, nil], found[1, 2]
    assert_match(/malloc profile of the backend imports is running.*Memscope::MallocProfile.stop/, found[3])
    assert_match(/could not be started: a measurement is running/, found[4])
  end

  def test_nothing_stays_on_when_the_block_does_not_return
    found = measured(<<~RUBY)
      native = Memscope.const_get(:Native)
      left = []
      left << (Memscope.measure { raise IOError, "mine" } rescue [$!.class, native.measuring])
      left << catch(:out) { Memscope.measure { throw :out, 7 } }
      left << [1].each { Memscope.measure { break } }
      Thread.new { Memscope.measure { sleep } }.tap { |thread| sleep 0.01 until native.measuring }.kill.join
      Memscope::ObjectProfile.start
      Memscope::MallocProfile.start(backend: :imports)
      puts JSON.generate([*left, native.measuring, Memscope::MallocProfile.stop.overhead.patched_imports.positive?])
    RUBY

    assert_equal [["IOError", nil], 7, [1], nil, true], found
  end

  def test_a_child_forked_in_the_block_goes_on_unmeasured
    found = measured(<<~RUBY)
      reader, writer = IO.pipe
      measurement = Memscope.measure do
        fork { writer << Memscope.const_get(:Native).measuring.inspect << " " << again { Object.new }.allocated_objects }
        Process.wait
        fork ? Process.wait : 1
      end
      if measurement.value == 1
        writer << " " << measurement.allocated_objects.inspect << " " << measurement.reasons[:lines]
        exit!
      end
      writer.close
      puts JSON.generate([reader.read, measurement.allocated_objects.positive?])
    RUBY

    assert_equal ["nil 1 nil the block began in the process that this one was forked from", true], found
  end

  def test_the_peak_is_of_the_block_alone
    skip_under_sanitizer
    found = measured(<<~RUBY)
      ("x" * 60_000_000).clear
      measurement = Memscope.measure { ("x" * 20_000_000).clear; Memscope.rss }
      quiet = Memscope.measure { Memscope.rss }
      puts JSON.generate([measurement.peak_bytes, measurement.value, quiet.peak_bytes, quiet.value,
                          measurement.reasons[:peak_bytes]])
    RUBY
    peak, during, quiet, rss, reason = found
    skip reason if peak.nil?

    assert_in_delta 20_000_000, peak - during, 4 << 20
    assert_in_delta rss, quiet, 2 << 20
  end

  # What the injection adds is what the rows gain; a second source for each number.
  both_allocators("the rows and malloc gain what stays") do |preload|
    skip_under_sanitizer
    found = measured(<<~RUBY, preload: preload)
      work = -> { $kept = Array.new(64) { "x" * 98_000 }; nil }
      work.call
      $kept = nil
      measurement = Memscope.measure(&work)
      puts JSON.generate([measurement.malloc_allocated_bytes, measurement.malloc_retained_bytes,
                          measurement.rows.dig(:rows, :malloc).rows.flat_map { |one| [one, *one.rows] }
                                     .select { |one| %i[in_use mmapped].include?(one.id) }.sum(&:change)])
    RUBY

    assert_in_delta 6_272_000, found[0], 100_000
    assert_in_delta 6_272_000, found[1], 100_000
    assert_in_delta found[1], found[2], 300_000
  end

  both_allocators("malloc bytes equal the exact count of the imports") do |preload|
    skip_under_sanitizer
    found = measured(<<~RUBY, preload: preload)
      require "zlib"
      work = lambda do
        strings = Array.new(500) { |number| "x" * (number * 7) }
        pairs = strings.each_with_index.to_h { |text, number| [number, text + "y"] }
        20.times { |number| pairs.delete(number) }
        Zlib.deflate(strings.join)
      end
      work.call
      native = Memscope.const_get(:Native)
      counts = ([false, true] * 4).map do |by_imports|
        GC.start
        native.clear_stack
        body = native.measure(false, by_imports, &work)[1]
        [body[:malloc_allocated_bytes], body[:malloc_retained_bytes]]
      end
      puts JSON.generate(counts.drop(2).partition.with_index { |_, index| index.even? })
    RUBY
    # A collection may take what lies on the machine stack for a reference: the least is what is really retained.
    by_thread, by_imports = found.map { |counts| counts.transpose.map(&:min) }

    assert_equal by_thread, by_imports
    assert_operator by_thread.first, :>, 1_000_000
  end

  # Ruby calls no hook for a GC within the hook of another tool.
  def test_what_is_retained_is_unknown_if_a_collection_was_not_seen
    found = measured(<<~RUBY, requires: ["objspace"])
      measurement = again do
        ObjectSpace.trace_object_allocations do
          GC.stress = true
          Array.new(30) { Object.new }
        ensure
          GC.stress = false
        end
      end
      puts JSON.generate([measurement.allocated_objects, measurement.retained_objects, measurement.retained_bytes,
                          measurement.lines[0].retained_bytes, measurement.reasons[:retained_objects]])
    RUBY
    skip "this Ruby started no garbage collection within the hook" unless found.last

    assert_equal [31, nil, nil, nil], found.first(4)
    assert_match(/\Ano hook was called for some garbage collections/, found.last)
  end

  def test_under_gc_stress
    found = measured(<<~RUBY)
      work = lambda do
        GC.stress = 3 # no major collections, and lazy sweeping
        Array.new(40) { |number| [Object.new, "text \#{number}"] }
      ensure
        GC.stress = false
      end
      work.call
      measurement = again(&work)
      puts JSON.generate(measurement.classes.to_h { |row| [row.name, row.retained_objects] })
    RUBY

    assert_equal({ "Array" => 41, "Object" => 40, "String" => 40 }, found)
  end

  def test_objects_that_compaction_moves
    skip_without_compaction
    found = measured(<<~RUBY)
      class Order; end
      work = lambda do
        GC.start
        kept = Array.new(20_000) { [Object.new, Order.new] }.each_slice(4).map(&:first)
        GC.compact
        kept.concat(Array.new(100) { Order.new })
      end
      work.call
      GC.auto_compact = true
      measurement = again(&work)
      puts JSON.generate([measurement.retained_objects,
                          measurement.classes.to_h { |row| [row.name, row.retained_objects] },
                          measurement.lines.map(&:name)])
    RUBY
    retained, classes, lines = found

    assert_equal retained, classes.values.sum
    assert_equal [5000, 5100], classes.values_at("Object", "Order")
    assert_empty(lines.grep_v(/\A(?:-e|<internal:.*>):\d+\z/))
  end

  def test_without_the_extension_the_block_runs_and_nothing_is_known
    found = ChildProcess.run(<<~RUBY, requires: ["json"]).json
      module NotFound
        def require(feature) = feature == "memscope/memscope.so" ? raise(LoadError, "cannot load it") : super
      end
      Object.prepend(NotFound)
      require "memscope"
      measurement = Memscope.measure { 5 }
      unknown = measurement.to_h.slice(:allocated_objects, :lines, :malloc_allocated_bytes, :peak_bytes).values
      puts JSON.generate([measurement.value, unknown.compact, measurement.reasons[:allocated_objects]])
    RUBY

    assert_equal [5, []], found.first(2)
    assert_match(/could not be loaded: cannot load it/, found.last)
  end

  def test_inspect_and_equality
    one = Measurement.capture(body)

    assert_equal one, Measurement.from_h(one.to_h)
    assert_equal one.holding(5), one
    assert_equal 5, one.holding(5).value
    assert_includes one.inspect, "allocated_objects=3"
  end
end
