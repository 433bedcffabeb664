# frozen_string_literal: true

require_relative "../test_helper"

# What hooks Ruby's allocations ends before another Ractor exists, however that is created: with a NEWOBJ hook, Ruby
# before 3.1.4 crashes whenever one begins, and Ruby 4.0 corrupts malloc's heap when the hook is removed beside it.
class RactorsNoticedTest < MemscopeTest
  parallelize_me!

  PRELUDE = <<~RUBY
    Warning[:experimental] = false
    PROFILE = Memscope::ObjectProfile
    HELD = []
    def ended(ractor) = ractor.respond_to?(:value) ? ractor.value : ractor.take # take until 4.0
    def alone = (sleep 0.001 while Ractor.count > 1)

    def objects(profile) = profile.by(:class).find { |row| row.name == "Object" }.live_objects

    # A profile that watches every allocation, whether it is running, and why not.
    def ends_a_profile
      PROFILE.start(budget: 1)
      HELD.replace(Array.new(20_000) { Object.new })
      ractor = yield
      later = Array.new(20_000) { Object.new }
      profile = PROFILE.stop
      ended(ractor)
      alone
      [objects(profile), profile.running?, profile.reasons[:live_objects].to_s[/\\Aa Ractor was .* ended the profile/]]
    end
  RUBY

  def child(script, **options)
    child_json("#{PRELUDE}#{script}", requires: %w[json memscope/profile/measurement], **options)
  end

  # An estimate from some 400 samples: with those allocated later, there would be twice as many objects.
  def assert_ended(answers)
    answers.each do |live, running, reason|
      assert_in_delta 20_000, live, 8_000
      assert_equal [false, "a Ractor was created, which ended the profile"], [running, reason]
    end
  end

  def test_however_it_is_created
    ways = child(<<~RUBY)
      class Other < Ractor; end
      class << Ractor
        alias other new
      end
      ways = { new: -> { Ractor.new { 1 } }, subclass: -> { Other.new { 1 } }, alias: -> { Ractor.other { 1 } },
               method: -> { Ractor.method(:new).unbind.bind(Other).call { 1 } },
               thread: -> { Thread.new { Ractor.new { 1 } }.value },
               fiber: -> { Fiber.new { Ractor.new { 1 } }.resume },
               prepended: -> { Ractor.singleton_class.prepend(Module.new { def new(...) = super }); Ractor.new { 1 } },
               redefined: -> { def Ractor.new(...) = other(...); Ractor.new { 1 } } }
      puts JSON.generate(ways.transform_values { |way| ends_a_profile(&way) })
    RUBY

    assert_ended ways.values
    assert_equal 8, ways.size
  end

  # A redefinition that came before the first profile.
  def test_rubys_own_method_is_found
    ways = child(<<~RUBY)
      class << Ractor
        alias other new
        def new(...) = other(...)
        prepend(Module.new { def new(...) = super })
      end
      puts JSON.generate([ends_a_profile { Ractor.new { 1 } }, ends_a_profile { Ractor.other { 1 } }])
    RUBY

    assert_ended ways
  end

  def test_until_it_is_stopped_it_counts_as_running_and_can_be_read
    answer = child(<<~RUBY)
      PROFILE.start(budget: 1)
      HELD.replace(Array.new(20_000) { Object.new })
      ractor = Ractor.new { receive }
      answers = [PROFILE.running?, (PROFILE.start rescue $!.message), PROFILE.snapshot.live_objects]
      answers << Memscope.tags.reasons[:profiled].to_s
      answers << PROFILE.stop.live_objects << PROFILE.running?
      answers << (PROFILE.start rescue $!.message)
      ractor.send(1)
      ended(ractor)
      alone
      PROFILE.start
      puts JSON.generate([*answers, PROFILE.running?])
    RUBY

    assert_equal [true, "an object profile is already running: stop it first (Memscope::ObjectProfile.stop)"],
                 answer.shift(2)
    live, tags, again, running, beside, restarted = answer

    assert_operator live, :>, 0
    assert_equal [live, false, true], [again, running, restarted]
    assert_match(/other Ractors are alive/, beside)
    assert_match(/\Aa Ractor was created|\A\z/, tags)
  end

  # Ruby code makes a profile of the last reading, while other threads may ask for it too.
  def test_several_threads_may_read_a_profile_that_has_ended
    sizes = child(<<~RUBY)
      stack = Memscope::Profile::Stack
      PROFILE.start(budget: 1)
      HELD.replace(Array.new(1_000) { Object.new })
      ended(Ractor.new { 1 })
      profiles = []
      point = TracePoint.new(:call) do |call|
        next unless call.self == stack

        point.disable
        profiles << Thread.new { PROFILE.snapshot }.value
      end
      point.enable(target: stack.method(:record))
      profiles << PROFILE.snapshot << PROFILE.stop
      puts JSON.generate(profiles.map { |profile| [profile.live_objects, profile.stacks.size] })
    RUBY

    assert_equal [3, 1], [sizes.size, sizes.uniq.size]
  end

  # In the window between the call and the Ractor's birth, other threads run, such as in Warning.warn: no hook is added.
  def test_within_ractor_new_nothing_begins
    messages = child(<<~RUBY)
      Warning[:experimental] = true
      MESSAGES = []
      def Warning.warn(*, **)
        start = -> { PROFILE.start(budget: 1) rescue $!.message }
        MESSAGES << Thread.new(&start).value << start.call
        measurement = Thread.new { Memscope.measure { Object.new } }.value
        MESSAGES << measurement.reasons[:classes]
      end
      ended(Ractor.new { 1 })
      puts JSON.generate(MESSAGES)
    RUBY

    assert_equal ["a thread is creating a Ractor"] * 3, messages
  end

  # The same, with a watch that began earlier.
  def test_within_ractor_new_that_was_noticed_nothing_begins
    messages = child(<<~RUBY)
      Warning[:experimental] = true
      MESSAGES = []
      def Warning.warn(*, **)
        PROFILE.stop
        MESSAGES << (PROFILE.start(budget: 1) rescue $!.message)
      end
      PROFILE.start(budget: 1)
      ended(Ractor.new { 1 })
      alone
      PROFILE.start(budget: 1)
      puts JSON.generate([*MESSAGES, PROFILE.running?])
    RUBY

    assert_equal ["a thread is creating a Ractor", true], messages
  end

  # However a call ends without a Ractor, it ends the time in which nothing begins. Ruby asks for the name within it.
  def test_calls_that_fail_refuse_nothing_afterwards
    within, after, alive = child(<<~RUBY)
      ENTERED = Queue.new
      def create(&name)
        object = Object.new
        object.define_singleton_method(:to_str, &name)
        Ractor.new(name: object) { 1 }
      end
      def waiting = Thread.new { create { ENTERED << 1; sleep } rescue 1 }.tap { ENTERED.pop }
      def start = (PROFILE.start(budget: 1); PROFILE.halt; "started") rescue $!.message
      start
      create { raise "x" } rescue 1
      catch(:away) { create { throw :away } }
      Thread.new { create { Thread.current.kill } }.join
      threads = [waiting, waiting]
      within = start
      threads[0].kill.join
      threads[1].raise("x")
      threads[1].join
      Ractor.new rescue 1
      puts JSON.generate([within, start, Ractor.count])
    RUBY

    assert_equal ["a thread is creating a Ractor", "started", 1], [within, after, alive]
  end

  # There, Ruby calls no other TracePoint. The GC comes upon the Ractor, which waits.
  def test_within_the_handler_of_a_trace_point_nothing_crashes
    message, running, measured = child(<<~RUBY)
      def traced = nil
      unnoticed = lambda do
        ractor = nil
        handler = TracePoint.new(:call) { ractor = Ractor.new { Array.new(receive) { Object.new }.size } }
        handler.enable(target: method(:traced)) { traced }
        GC.start
        ractor.send(1_000)
        ended(ractor)
      end
      PROFILE.start(budget: 1)
      HELD.replace(Array.new(1_000) { Object.new })
      unnoticed.call
      message = begin
        PROFILE.stop.reasons[:live_objects]
      rescue Memscope::Unavailable => e
        e.message
      end
      alone
      measurement = Memscope.measure(&unnoticed)
      puts JSON.generate([message, PROFILE.running?, [measurement.value, measurement.allocated_objects.positive?]])
    RUBY

    assert_match(/created inside the handler of a TracePoint|which ended the profile/, message)
    refute running
    assert_equal [1_000, true], measured
  end

  def test_a_measurement_goes_on_without_classes
    value, allocated, classes, reason = child(<<~RUBY)
      measurement = Memscope.measure { [ended(Ractor.new { 7 }), Object.new].first }
      puts JSON.generate([measurement.value, measurement.allocated_objects, measurement.classes,
                          measurement.reasons[:classes]])
    RUBY

    assert_equal [7, nil], [value, classes]
    assert_operator allocated, :>, 1
    assert_match(/\Athe block created a Ractor/, reason)
  end

  # Its rounds that look for lines trace allocations.
  def test_a_growth_check_goes_on_without_lines
    names, held, reason = child(<<~RUBY, requires: %w[json memscope])
      check = Memscope::Check.run(warmup: 10, runs: 3, iterations: 10) do
        HELD << Object.new
        ended(Ractor.new { 1 })
        alone
      end
      grown = check.grown.first
      puts JSON.generate([grown.name, grown.held_by, check.reasons[:places]])
    RUBY

    assert_equal "Object", names
    assert_includes held.to_a.join, "HELD"
    assert_match(/the block created a Ractor/, reason)
  end

  def test_what_is_required_is_recorded_up_to_there
    watched = child(<<~RUBY)
      native = Memscope.module_eval("Native")
      PROFILE.obstacle
      answers = Array.new(2) do |ractors|
        native.start_owners
        ractors.times { ended(Ractor.new { Array.new(1_000) { Object.new }.size }) }
        native.stop_owners.last
      end
      puts JSON.generate(answers)
    RUBY

    assert_equal [true, false], watched
  end

  # In its child, and in its parent's own time.
  def test_after_a_fork
    answers = child(<<~RUBY)
      PROFILE.start(budget: 1)
      HELD.replace(Array.new(1_000) { Object.new })
      reader, writer = IO.pipe
      Process.wait(fork do
        ended(Ractor.new { 1 })
        writer.puts PROFILE.stop.reasons[:live_objects].to_s[/ended the profile/]
        exit!
      end)
      writer.close
      before = PROFILE.snapshot
      HELD.concat(Array.new(20_000) { Object.new })
      mine = PROFILE.snapshot
      answers = [reader.read.chomp, mine.running?, objects(mine) > objects(before)]
      ended(Ractor.new { 1 })
      puts JSON.generate([*answers, PROFILE.stop.reasons[:live_objects].to_s[/ended the profile/]])
    RUBY

    assert_equal ["ended the profile", true, true, "ended the profile"], answers
  end

  # Before Ruby 3.2, a watch would throw away all that YJIT has compiled.
  def test_beside_the_first_yjit
    skip "of Ruby 3.1 only" unless RUBY_VERSION < "3.2" && defined?(RubyVM::YJIT)

    answers = child(<<~RUBY, ruby_args: ["--yjit"])
      message = (PROFILE.start(budget: 1); "none") rescue $!.message
      measurement = Memscope.measure { 100.times { Object.new } }
      puts JSON.generate([message, Memscope.module_eval("Native.ractors_watched?"), measurement.reasons[:classes]])
    RUBY
    if RUBY_VERSION < "3.1.4"
      assert_match(/crashes when a Ractor is created.*YJIT/, answers[0])
      assert_equal answers[0], answers[2]
    end

    refute answers[1]
  end

  # Then Ruby's own method cannot be found.
  def test_where_ractor_new_cannot_be_watched
    message, running = child(<<~RUBY)
      original = Ractor.method(:new)
      Ractor.define_singleton_method(:new) { |*arguments, &block| original.call(*arguments, &block) }
      message = (PROFILE.start(budget: 1); "none") rescue $!.message
      ended(Ractor.new { Array.new(1_000) { Object.new }.size })
      HELD.replace(Array.new(1_000) { Object.new })
      GC.start
      puts JSON.generate([message, PROFILE.running?])
    RUBY
    if RUBY_VERSION < "3.1.4"
      assert_match(/crashes when a Ractor is created.*Ractor.new is redefined/, message)
    else
      assert_equal "none", message
    end

    assert_equal RUBY_VERSION >= "3.1.4", running
  end

  # They hook fibers and threads, and the profile of malloc hooks GCs.
  def test_tags_and_a_profile_of_malloc_go_on
    answers = child(<<~RUBY, requires: %w[json memscope/profile/malloc_profile])
      Memscope::MallocProfile.start(backend: :imports, rate: 512)
      Memscope.tag("a") { HELD << "x" * 100_000 }
      5.times do
        ractors = Array.new(3) { Ractor.new { 3.times { GC.start }; Array.new(100) { "y" * 1_000 }.size } }
        Memscope.tag("a") { HELD << "x" * 100_000 }
        GC.start
        Memscope::MallocProfile.snapshot
        ractors.each { |one| ended(one) }
      end
      puts JSON.generate([Memscope.tags.first.runs, Memscope::MallocProfile.stop.live_bytes])
    RUBY

    assert_equal 6, answers[0]
    assert_operator answers[1], :>=, 600_000
  end
end
