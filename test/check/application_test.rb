# frozen_string_literal: true

require_relative "../test_helper"
require "tmpdir"
require_relative "../support/rack_path"

# What an application keeps with each request is found, and counted exactly; what it does not keep is not.
class CheckApplicationTest < MemscopeTest
  parallelize_me!

  RACKUP = File.expand_path("../support/workloads/application.ru", __dir__)
  REQUIRES = %w[json memscope].freeze
  # Bytes of the slot of a small object, and of a 64-byte block as each allocator counts it.
  SLOT = GC::INTERNAL_CONSTANTS.fetch(:RVALUE_SIZE) { GC::INTERNAL_CONSTANTS.fetch(:BASE_SLOT_SIZE) }
  BLOCK = { nil => 80, "libjemalloc.so.2" => 64 }.freeze

  both_allocators "what is kept" do |preload|
    skip_under_sanitizer
    nothing, object, block, bounded = checks(%w[/nothing /object /block /bounded], preload: preload)

    assert_equal %i[steady leak leak steady], [nothing, object, block, bounded].map(&:verdict)
    assert_object(object.grown, object)
    assert_block(block.grown, block, BLOCK.fetch(preload))
    [nothing, bounded].each { |one| assert_in_delta 0, one.per_iteration(:objects), 0.2 }
  end

  def assert_object(grown, check)
    line = File.readlines(RACKUP).index { |text| text.include?('"/object" =>') } + 1

    assert_equal([["Kept", [20] * 5]], grown.map { |one| [one.name, one.growth] })
    assert_equal([RACKUP, line, 40], grown.first.places.first.then { |place| [place.path, place.lineno, place.count] })
    assert_match(/Array → Kept\z/, grown.first.held_by.join(" → "))
    assert_in_delta 1, check.per_iteration(:objects), 0.1
    assert_in_delta SLOT, check.per_iteration(:slot_bytes), SLOT / 10.0
  end

  def assert_block(grown, check, bytes)
    assert_equal([[:malloc, nil, 1]], grown.map { |one| [one.layer, one.name, one.per_iteration] })
    assert_match(/leaks_take_block/, grown.first.places.first.native)
    assert_in_delta bytes, check.per_iteration(:malloc_bytes), bytes / 4.0
  end

  def test_the_points
    rss = "File.read('/proc/self/statm').split[1].to_i * 4096"
    objects, rss = checks(["/objects"], requests: 191, after: rss)

    assert_equal (0..10).map { |round| 20 * round }, objects.points.map(&:iterations)
    assert_equal([60] * 5, objects.points.last(6).each_cons(2).map { |one, later| later.objects - one.objects })
    assert_in_delta rss, objects.points.last.rss_bytes, rss / 20
    assert_equal [100, 2000], [objects.judged_iterations, objects.longer_iterations]
    assert_equal objects, Memscope::Check.from_json(objects.to_json)
  end

  # An Array's element has 8 bytes; its capacity grows by half.
  def test_an_array_that_grows
    numbers, = checks(["/numbers"], requests: 2000)

    assert_equal :steady, numbers.verdict
    assert_includes 8..24, numbers.uncounted_bytes
  end

  def test_a_cache_that_fills_more_and_more_slowly
    assert_equal :filling, checks(["/slowing"], requests: 100).first.verdict
  end

  # A buffer is sent once no request has been made for some seconds.
  def test_what_a_timer_lets_go_of
    buffer, both = checks(%w[/buffer /buffer_and_object])

    assert_equal [:steady, %w[Kept]], [buffer.verdict, buffer.expired & %w[Kept]]
    assert_match(/Released some seconds after the last request,.*Kept/m, buffer.to_s)
    assert_equal [:leak, [["Kept", [20] * 5]]], [both.verdict, both.grown.map { |one| [one.name, one.growth] }]
    assert_equal [40], both.grown.first.places.map(&:count)
  end

  FAILURES = {
    "/raise" => %r{\AGET /raise raised IndexError: no such order at .*/application\.ru:\d+\z},
    "/broken" => %r{\AGET /broken: status 500 Internal\z},
    "/missing" => %r{\AGET /missing: status 404 not here\z},
    "/moved" => %r{\AGET /moved: status 302 to /login\z},
    # Bodies are read and closed; a request looks as if from a browser on this machine, by HTTPS.
    "/seen" => %r{\AGET /seen raised RuntimeError: 3 localhost https \*/\* 127\.0\.0\.1 production at },
    "/odd" => %r{\AGET /odd raised Exception: odd at },
    # Its status would pass for a verdict.
    "/exit" => %r{\AGET /exit raised SystemExit: exit at .*/application\.ru:\d+\z}
  }.freeze
  UNLOADABLE = { "raise 'no database'" => /\.ru raised RuntimeError: no database at .*\.ru:1\z/,
                 "require 'no_such_gem'" => /\.ru: LoadError: cannot load such file -- no_such_gem\. .*: bundle exec/,
                 "abort 'no key'" => /\.ru raised SystemExit: no key at .*\.ru:1\z/,
                 "run(" => /\.ru raised SyntaxError: / }.freeze

  def test_requests_that_fail_and_applications_that_cannot_be_loaded
    Dir.mktmpdir do |directory|
      paths = UNLOADABLE.keys.map.with_index do |text, index|
        File.join(directory, "#{index}.ru").tap { |path| File.write(path, text) }
      end
      given = [*FAILURES.keys.map { |path| [RACKUP, path] }, *paths.map { |path| [path, "/"] }]
      messages = refusals(given)

      [*FAILURES, *UNLOADABLE].map(&:last).zip(messages) { |expected, message| assert_match expected, message }
    end
  end

  def test_without_rack
    assert_match(/application\.ru: the gem rack is missing\. .*: bundle exec memscope leaks \S+application\.ru\z/,
                 refusals([[RACKUP, "/"]], ruby_args: []).first)
  end

  { ["nowhere.ru", {}] => 'target: given "nowhere.ru", allowed: a rackup file',
    [RACKUP, { path: "orders" }] => 'path: given "orders", allowed: a path that begins with /',
    [RACKUP, { requests: 99 }] => "requests: given 99, allowed: an Integer from 100 to 1000000" }
    .each do |(target, options), message|
    define_method("test_wrong_arguments_#{[File.basename(target), *options].join('_').gsub(/\W+/, '_')}") do
      error = assert_raises(ArgumentError) { Memscope::Check.application(target, **options) }

      assert_equal "Memscope::Check.application: #{message}", error.message
    end
  end

  private

  # @return [Array<Memscope::Check>] one for each path, from one child; then the value of `after` there
  def checks(paths, requests: 200, after: nil, preload: nil)
    all, after = ChildProcess.run(<<~RUBY, preload: preload, requires: REQUIRES, ruby_args: RackPath.arguments).json
      all = #{paths.inspect}.map do |path|
        Memscope::Check.application(#{RACKUP.inspect}, path: path, requests: #{requests}).to_h
      end
      puts JSON.generate([all, #{after || 'nil'}])
    RUBY
    [*all.map { |hash| Memscope::Check.from_h(hash) }, *after]
  end

  # @return [Array<String>] the messages of Failed
  def refusals(given, ruby_args: RackPath.arguments)
    ChildProcess.run(<<~RUBY, ruby_args: ruby_args, requires: REQUIRES).json
      messages = #{given.inspect}.map do |rackup, path|
        Memscope::Check.application(rackup, path: path).to_s
      rescue Memscope::Check::Failed => e
        e.message
      end
      puts JSON.generate(messages)
    RUBY
  end
end
