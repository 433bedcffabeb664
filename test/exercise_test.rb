# frozen_string_literal: true

require_relative "test_helper"
require "tmpdir"
require_relative "support/rack_path"

# What an application keeps with each request is found, and counted exactly; what it does not keep is not.
class ExerciseTest < MemscopeTest
  parallelize_me!

  RACKUP = File.join(__dir__, "support/workloads/exercise.ru")
  REQUIRES = %w[json memscope].freeze
  # Bytes of the slot of a small object, and of a 64-byte block as each allocator counts it.
  SLOT = GC::INTERNAL_CONSTANTS.fetch(:RVALUE_SIZE) { GC::INTERNAL_CONSTANTS.fetch(:BASE_SLOT_SIZE) }
  BLOCK = { nil => 80, "libjemalloc.so.2" => 64 }.freeze

  both_allocators "what is kept" do |preload|
    skip_under_sanitizer
    nothing, object, block, bounded = exercises(%w[/nothing /object /block /bounded], preload: preload)

    assert_equal %i[steady grows grows steady], [nothing, object, block, bounded].map(&:verdict)
    assert_object(object.check.grown, object)
    assert_block(block.check.grown, block, BLOCK.fetch(preload))
    [nothing, bounded].each { |one| assert_in_delta 0, one.per_request(:objects), 0.2 }
  end

  def assert_object(grown, exercise)
    line = File.readlines(RACKUP).index { |text| text.include?('"/object" =>') } + 1

    assert_equal([["Exercised", [20] * 5]], grown.map { |one| [one.name, one.growth] })
    assert_equal([RACKUP, line, 40], grown.first.places.first.then { |place| [place.path, place.lineno, place.count] })
    assert_match(/Array → Exercised\z/, grown.first.held_by.join(" → "))
    assert_in_delta 1, exercise.per_request(:objects), 0.1
    assert_in_delta SLOT, exercise.per_request(:slot_bytes), SLOT / 10.0
  end

  def assert_block(grown, exercise, bytes)
    assert_equal([[:malloc, nil, 1]], grown.map { |one| [one.layer, one.name, one.per_iteration] })
    assert_match(/leaks_take_block/, grown.first.places.first.native)
    assert_in_delta bytes, exercise.per_request(:malloc_bytes), bytes / 4.0
  end

  def test_the_points
    rss = "File.read('/proc/self/statm').split[1].to_i * 4096"
    objects, allowed, rss = exercises(%w[/objects /missing], requests: 191, options: "allow_status: [404]", after: rss)

    assert_equal (0..10).map { |round| 20 * round }, objects.points.map(&:requests)
    assert_equal([60] * 5, objects.points.last(6).each_cons(2).map { |one, later| later.objects - one.objects })
    assert_in_delta rss, allowed.points.last.rss_bytes, rss / 20
    assert_equal [100, 2000], [objects.judged_requests, objects.longer_requests]
    assert_equal objects, Memscope::Exercise.from_json(objects.to_json)
    assert_equal :steady, allowed.verdict
  end

  # An Array's element has 8 bytes; its capacity grows by half.
  def test_an_array_that_grows
    numbers, = exercises(["/numbers"], requests: 2000)

    assert_equal :steady, numbers.verdict
    assert_includes 8..24, numbers.uncounted_bytes
  end

  def test_a_cache_that_fills_more_and_more_slowly
    assert_equal :filling, exercises(["/slowing"], requests: 100).first.verdict
  end

  # A buffer is sent once no request has been made for some seconds.
  def test_what_a_timer_lets_go_of
    buffer, both = exercises(%w[/buffer /buffer_and_object])

    assert_equal [:steady, %w[Exercised]], [buffer.verdict, buffer.check.expired & %w[Exercised]]
    assert_match(/Released some seconds after the last request,.*Exercised/m, buffer.to_s)
    assert_equal [:grows, [["Exercised", [20] * 5]]],
                 [both.verdict, both.check.grown.map { |one| [one.name, one.growth] }]
    assert_equal [40], both.check.grown.first.places.map(&:count)
  end

  # Each thread keeps objects of its own.
  def test_threads
    exercise, = exercises(["/thread"], options: "threads: 3")

    assert_equal [3, :grows], [exercise.threads, exercise.verdict]
    assert_equal(["Exercised", [20] * 5], exercise.check.grown.first.then { |one| [one.name, one.growth] })
    assert_match(/Thread.*Array → Exercised\z/, exercise.check.grown.first.held_by.join(" → "))
  end

  def test_an_interrupt
    exercise, = exercises(["/stop"])

    assert_equal [:unknown, nil], [exercise.verdict, exercise.check]
    assert_equal [7, true], [exercise.points.size, exercise.interrupted?]
    assert_equal 100, exercise.judged_requests
    assert_match(/\Ainterrupted after 130 requests, before there was a verdict/, exercise.reasons[:check])
  end

  # It comes after the last round, while lines are looked for.
  def test_a_late_interrupt
    exercise, = exercises(["/stop_late"])

    assert_equal [:grows, 11, 1], [exercise.verdict, exercise.points.size, exercise.check.grown.size]
    refute_predicate exercise, :interrupted?
    assert_equal ["Exercised", []], [exercise.check.grown.first.name, exercise.check.grown.first.places]
    assert_match(/interrupted before the lines were found/, exercise.to_s)
  end

  FAILURES = {
    "/raise" => %r{\AGET /raise raised IndexError: no such order at .*/exercise\.ru:\d+\z},
    "/broken" => %r{\AGET /broken: status 500 Internal\z},
    "/missing" => %r{\AGET /missing: status 404 not here; allow_status \(--allow-status 404\) allows it\z},
    "/moved" => %r{\AGET /moved: status 302 to /login; allow_status \(--allow-status 302\) allows it\z},
    # Bodies are read and closed; a request looks as if from a browser on this machine.
    "/seen" => %r{\AGET /seen raised RuntimeError: 3 localhost text/html 127\.0\.0\.1 production at },
    "/odd" => %r{\AGET /odd raised Exception: odd at },
    # Its status would pass for a verdict.
    "/exit" => %r{\AGET /exit raised SystemExit: exit at .*/exercise\.ru:\d+\z}
  }.freeze

  def test_requests_that_fail
    headers = "headers: { 'Accept' => 'text/html' }"
    given = FAILURES.keys.map { |path| "#{RACKUP.inspect}, path: #{path.inspect}, #{headers}" }

    FAILURES.values.zip(refusals(given)) { |expected, message| assert_match expected, message }
  end

  # Nothing waits for a thread that has ended.
  def test_requests_that_fail_in_threads
    given = %w[/odd /exit /end].map { |path| "#{RACKUP.inspect}, path: #{path.inspect}, threads: 2" }

    [FAILURES["/odd"], FAILURES["/exit"], /\Aa request ended its thread\z/].zip(refusals(given)) do |expected, message|
      assert_match expected, message
    end
  end

  UNLOADABLE = { "raise 'no database'" => /\.ru raised RuntimeError: no database at .*\.ru:1\z/,
                 "require 'no_such_gem'" => /\.ru: LoadError: cannot load such file -- no_such_gem; .*: bundle exec/,
                 "abort 'no key'" => /\.ru raised SystemExit: no key at .*\.ru:1\z/,
                 "run(" => /\.ru raised SyntaxError: / }.freeze

  def test_applications_that_cannot_be_loaded
    Dir.mktmpdir do |directory|
      paths = UNLOADABLE.keys.map.with_index do |text, index|
        File.join(directory, "#{index}.ru").tap { |path| File.write(path, text) }
      end

      UNLOADABLE.values.zip(refusals(paths.map(&:inspect))) { |expected, message| assert_match expected, message }
    end

    assert_match(/exercise\.ru: the gem rack is not there; .*: bundle exec memscope exercise\z/,
                 refusals([RACKUP.inspect], ruby_args: []).first)
  end

  { ["nowhere.ru", {}] => 'target: given "nowhere.ru", allowed: a rackup file',
    [RACKUP, { path: "orders" }] => 'path: given "orders", allowed: a path that begins with /',
    [RACKUP, { requests: 99 }] => "requests: given 99, allowed: an Integer from 100 to 1000000",
    [RACKUP, { headers: { Accept: "*/*" } }] => "headers: given {",
    [RACKUP, { headers: { "A" => "b\nc: d" } }] => "allowed: a Hash of Strings without line breaks",
    [RACKUP, { threads: 0 }] => "threads: given 0, allowed: an Integer from 1 to 64",
    [RACKUP, { allow_status: [500] }] => "allow_status: given [500], allowed: statuses from 300 to 499" }
    .each do |(target, options), message|
    define_method("test_wrong_arguments_#{[target, *options].join('_').gsub(/\W+/, '_')}") do
      error = assert_raises(ArgumentError) { Memscope::Exercise.run(target, **options) }

      assert_match(/\AMemscope::Exercise\.run: .*#{Regexp.escape(message)}/, error.message)
    end
  end

  private

  # @return [Array<Memscope::Exercise>] one for each path, from one child; then the value of `after` there
  def exercises(paths, requests: 200, options: "", after: nil, preload: nil)
    all, after = ChildProcess.run(<<~RUBY, preload: preload, requires: REQUIRES, ruby_args: RackPath.arguments).json
      all = #{paths.inspect}.map do |path|
        Memscope::Exercise.run(#{RACKUP.inspect}, path: path, requests: #{requests}, #{options}).to_h
      end
      puts JSON.generate([all, #{after || 'nil'}])
    RUBY
    [*all.map { |hash| Memscope::Exercise.from_h(hash) }, *after]
  end

  # @return [Array<String>] the messages of Failed
  def refusals(given, ruby_args: RackPath.arguments)
    ChildProcess.run(<<~RUBY, ruby_args: ruby_args, requires: REQUIRES).json
      runs = [#{given.map { |arguments| "-> { Memscope::Exercise.run(#{arguments}) }" }.join(', ')}]
      messages = runs.map do |run|
        run.call.to_s
      rescue Memscope::Exercise::Failed => e
        e.message
      end
      puts JSON.generate(messages)
    RUBY
  end
end
