# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/planted_tags"
require_relative "../support/printed"
require "memscope/show/report"

# Memscope.tags: what was counted and sampled by tag, beside Ruby's and the allocator's own counts.
class TagsTest < MemscopeTest
  include Printed
  include PlantedTags

  # 16 samples of 100 objects, in 16 of 100 windows: by hand, 1,600 objects in 0.8 thousand runs; the error is that of
  # 16 independent samples, or more.
  def test_an_estimate_with_its_error
    found = tags(tag(16)).first

    assert_in_delta 2000, found.retained_objects
    assert_in_delta 1000, found.allocated_objects
    assert_operator found.retained_objects_error, :>=, 2000 / Math.sqrt(16)
    assert_operator found.retained_objects_error, :<, 2000 * 0.35
  end

  def test_of_few_samples_nothing_is_estimated
    few = tags(tag(9))

    assert_nil few.first.retained_objects
    assert_equal "unknown for tags with fewer than 10 samples", few.reasons[:retained_objects]
    assert_nil tags(tag(0, live_samples: 9)).first.live_objects
    assert_nil tags(tag(16, judged_runs: 0.0)).first.retained_objects
    assert_nil tags(tag(16, counted: 0)).first.allocated_objects
  end

  # An endpoint that has filled a cache in its only request, and one that keeps an object in each of many requests.
  def test_the_leak_comes_before_a_single_request_that_keeps_more
    once = tag(20, name: "once", runs: 1, judged_runs: 1.0)
    always = tag(90, name: "always", runs: 9000, judged_runs: 9000.0)

    assert_equal %w[always once never], tags(once, tag(0, name: "never"), always).map(&:name)
  end

  def test_before_any_tag
    tags = Memscope::Tags.from_h(child_json("puts Memscope.tags.to_json", requires: ["json"]))

    assert_empty tags.to_a
    assert_match(/\Ano block of Memscope.tag has run/, tags.reasons[:rows])
    assert_includes text(tags), "no block of Memscope.tag has run"
  end

  # One run is in progress when tags are read; a nested run counts separately; a continuation ends its run several
  # times.
  RUNS = <<~RUBY
    tags = nil
    3.times { Memscope.tag("outer") { Memscope.tag("inner") { 1 } } }
    begin
      Memscope.tag("failing") { raise "no" }
    rescue RuntimeError
      Memscope.tag("outer") { tags = Memscope.tags }
    end
    $VERBOSE = nil # callcc is obsolete
    require "continuation"
    again = nil
    ended = 0
    Memscope.tag("resumed") { callcc { |here| again = here } }
    again.call if (ended += 1) < 3
    child = IO.popen("-") do |pipe|
      next pipe.read if pipe

      print JSON.generate(Memscope.tags.map { |row| [row.name, row.runs, row.running] })
    end
    inside = Memscope.tag("outer") do
      IO.popen("-") { |pipe| pipe ? pipe.read : print(JSON.generate(Memscope.tags.map { |row| [row.name, row.runs, row.running] })) }
    end
    puts JSON.generate(tags: tags.to_h, child: JSON.parse(child), inside: JSON.parse(inside))
  RUBY

  def test_runs_are_counted
    found = child_json(RUNS, requires: ["json"])
    tags = Memscope::Tags.from_h(found["tags"])

    assert_equal({ "outer" => [4, 1], "inner" => [3, 0], "failing" => [1, 0] },
                 tags.rows.to_h { |row| [row.name, [row.runs, row.running]] })
    assert_equal [["failing", 1, 0], ["inner", 3, 0], ["outer", 4, 0], ["resumed", 1, 0]], found["child"].sort
    assert_equal [["failing", 1, 0], ["inner", 3, 0], ["outer", 5, 0], ["resumed", 1, 0]], found["inside"].sort
    assert_equal tags, Memscope::Tags.from_json(tags.to_json)
    assert_match(/\Ano profile of objects is running/, tags.reasons[:retained_objects])
  end

  # Every allocation is watched. GC.stat counts the same ones, and the few that memscope needs itself.
  OBJECTS = <<~RUBY
    Memscope::ObjectProfile.start(budget: 1)
    garbage = -> { 100.times { Object.new } }
    2.times { Memscope.tag("thousand") { 10.times { garbage.call } } }
    before = GC.stat(:total_allocated_objects)
    200.times { Memscope.tag("thousand") { 10.times { garbage.call } } }
    200.times { garbage.call }
    GC.start
    after = GC.stat(:total_allocated_objects)
    puts JSON.generate(tags: Memscope.tags.to_h, objects: (after - before - 20_000).fdiv(200))
  RUBY

  def test_allocated_objects_beside_the_count_of_ruby
    skip_under_sanitizer
    found = child_json(OBJECTS, requires: ["json"])
    row = Memscope::Tags.from_h(found["tags"]).first

    assert_in_delta found["objects"], row.allocated_objects, 20
    assert_in_delta 1000, row.allocated_objects, 20
  end

  # Each window ends within a call that allocates for long before a postponed job can run.
  LONG_CALLS = <<~RUBY
    text = "a," * 300_000
    Memscope::ObjectProfile.start
    60.times { Memscope.tag("split") { text.split(",").size } }
    puts JSON.generate(tags: Memscope.tags.to_h, windows: Memscope::ObjectProfile.snapshot.windows,
                       counted: Memscope.const_get(:Native).tags[:tags][0][:counted])
  RUBY

  def test_allocations_after_the_end_of_a_window_are_not_counted_in_it
    skip_under_sanitizer
    found = child_json(LONG_CALLS, requires: ["json"])
    row = Memscope::Tags.from_h(found["tags"]).first

    assert_operator found["counted"], :<=, 20_000 * found["windows"]
    assert_in_delta 300_000, row.allocated_objects, 60_000
  end

  # Blocks of 10,000 bytes: 10,240 in jemalloc's classes. What the allocator has in use grows by as much. Ruby 4.0 keeps
  # the megabyte of a thread's stack until the Thread is collected.
  BYTES = <<~RUBY
    Memscope::MallocProfile.start(backend: :imports, rate: 4096) if ARGV.first
    kept = []
    run = -> { 20.times { kept << ("k" * 10_000) } }
    Memscope.tag("keep") { 1 }
    in_use = -> { GC.start || Memscope.snapshot.jemalloc&.fetch(:allocated_bytes) }
    before = in_use.call
    threads = Array.new(4) { Thread.new { 25.times { Memscope.tag("keep") { run.call } } } }
    50.times { Memscope.tag("other") { Fiber.new { Memscope.tag("fiber") { run.call } }.resume } }
    threads.each(&:join).clear
    after = in_use.call
    puts JSON.generate(tags: Memscope.tags.to_h, grown: before && (after - before))
  RUBY

  def test_malloc_bytes_beside_the_total_of_jemalloc
    skip_under_sanitizer
    found = child_json(BYTES, requires: ["json"], preload: ChildProcess::ALLOCATORS[:jemalloc])
    bytes = Memscope::Tags.from_h(found["tags"]).rows.to_h { |row| [row.name, row.malloc_allocated_bytes * row.runs] }

    assert_in_delta 2000 * 10_240, bytes["keep"], 400_000
    assert_in_delta 1000 * 10_240, bytes["fiber"], 200_000
    assert_operator bytes["other"], :<, 1_000_000
    assert_in_delta found["grown"], bytes.values.sum, 0.06 * found["grown"]
  end

  def test_malloc_bytes_elsewhere_are_those_of_the_profile
    skip_under_sanitizer
    unknown = Memscope::Tags.from_h(child_json(BYTES, requires: ["json"])["tags"])

    assert_empty unknown.filter_map(&:malloc_allocated_bytes)
    assert_match(/\Aonly jemalloc counts/, unknown.reasons[:malloc_allocated_bytes])
    found = child_json("ARGV << 'profiled'\n#{BYTES}", requires: ["json"])
    rows = Memscope::Tags.from_h(found["tags"]).rows.to_h { |row| [row.name, row] }

    assert_in_delta 2000 * 10_000, rows["keep"].malloc_live_bytes, 3_000_000
    assert_in_delta 20 * 10_000, rows["keep"].malloc_allocated_bytes, 40_000
  end

  # jemalloc writes its profile to a file in memory, for which there is no descriptor left.
  def test_a_malloc_profile_that_cannot_be_read_leaves_the_other_numbers_known
    skip_under_sanitizer
    profiled = { preload: ChildProcess::ALLOCATORS[:jemalloc], env: { "MALLOC_CONF" => Memscope::MallocProfile::CONF } }
    tags = Memscope::Tags.from_h(child_json(<<~RUBY, requires: ["json"], **profiled))
      Memscope::MallocProfile.start
      Memscope.tag("a") { "k" * 100_000 }
      Memscope.tags
      Process.setrlimit(:NOFILE, 3)
      puts Memscope.tags.to_json
    RUBY

    assert_operator tags.first.malloc_allocated_bytes, :>=, 100_000
    assert_nil tags.first.malloc_live_bytes
    assert_match(/\Athe malloc profile could not be read: /, tags.reasons[:malloc_live_bytes])
  end

  # The tag's runs still count, but are not sampled any more.
  def test_a_ractor_ends_what_is_known_of_objects
    skip_under_sanitizer
    tags = Memscope::Tags.from_h(child_json(<<~RUBY, requires: ["json"]))
      Memscope::ObjectProfile.start(budget: 1)
      run = -> { 1000.times { Memscope.tag("a") { Array.new(10) { Object.new } } } }
      run.call
      $VERBOSE = nil
      ractor = Ractor.new { Ractor.receive }
      run.call
      tags = Memscope.tags
      ractor.send(1)
      puts tags.to_json
    RUBY

    assert_equal [2000, nil, nil], [tags.first.runs, tags.first.allocated_objects, tags.first.live_objects]
    assert_match(/\Aa Ractor was created/, tags.reasons[:allocated_objects])
  end

  # The parent's profile goes on in the child, with what it had counted; a new one begins anew.
  def test_in_a_forked_child
    skip_under_sanitizer
    found = child_json(<<~RUBY, requires: ["json"])
      kept = []
      Memscope::ObjectProfile.start(budget: 1)
      run = -> { 3.times { 500.times { Memscope.tag("a") { kept << Object.new << Object.new } } && GC.start } }
      run.call
      puts(IO.popen("-") do |pipe|
        next pipe.read if pipe

        run.call
        continued = Memscope.tags
        Memscope::ObjectProfile.stop
        run.call
        Memscope::ObjectProfile.start(budget: 1)
        run.call
        anew = Memscope.tags
        print JSON.generate([continued, anew].map(&:to_h))
      end)
    RUBY
    rows = found.map { |tags| Memscope::Tags.from_h(tags).first }

    assert_equal [3000, 6000], rows.map(&:runs)
    rows.each { |row| assert_in_delta 2000, row.retained_objects, 5 * row.retained_objects_error }
  end

  # A fiber is left inside a TracePoint, where no hook sees the switch, and its thread ends. The next one reuses its
  # native thread.
  def test_a_thread_begins_without_a_tag
    skip_under_sanitizer
    runs, counted = child_json(<<~RUBY, requires: ["json"])
      Memscope::ObjectProfile.start(budget: 1)
      5.times do
        Thread.new do
          trace = TracePoint.new(:line) { trace.disable && Fiber.new { Memscope.tag("a") { Fiber.yield } }.resume }
          trace.enable
          nil
        end.join
        Thread.new { 1000.times { Object.new } }.join
      end
      puts JSON.generate(Memscope.const_get(:Native).tags[:tags][0].values_at(:runs, :counted))
    RUBY

    assert_equal 5, runs
    assert_operator counted, :<, 500
  end

  # Rails' names differ in their ends.
  def test_a_long_name_shows_its_end
    found = child_json(<<~RUBY, requires: ["json"])
      Memscope.tag("Admin::Reporting::SubscriptionsController#cancel") { 1 }
      puts Memscope.tags.to_json
    RUBY
    tags = Memscope::Tags.from_h(found)

    assert_match(/ \.\.\.\w+Controller#cancel$/, text(tags))
    assert_includes Memscope::Report.render(tags, width: 120), "  Admin::Reporting::SubscriptionsController#cancel\n"
  end

  # A profile of objects, read a moment later, says the same by tag. Of five pairs, the closest counts: a processor that
  # is taken away in between changes by how much both multiply their samples.
  LIVE = <<~RUBY
    Memscope::ObjectProfile.start(budget: 1)
    kept = []
    3.times do
      2_000.times { |index| Memscope.tag("tag \#{index.odd? ? 0 : index % 120 / 2}") { kept << "k" * 100 << [index] } }
      GC.start
    end
    pairs = Array.new(5) { [Memscope.tags, Memscope::ObjectProfile.snapshot] }
    tags, profile = pairs.min_by do |tags, profile|
      row = tags.find(&:live_objects)
      (profile.by(:tag).find { |entry| entry.name == row.name }.live_objects - row.live_objects).abs
    end
    puts JSON.generate(tags: tags.to_h, profile: profile.to_h)
  RUBY

  def test_live_objects_beside_the_profile
    skip_under_sanitizer
    found = child_json(LIVE, requires: ["json"])
    tags = Memscope::Tags.from_h(found["tags"])
    entries = Memscope::Profile.from_h(found["profile"]).by(:tag).to_h { |entry| [entry.name, entry] }
    known = tags.select(&:live_objects)

    refute_empty known
    known.each do |row|
      assert_in_delta entries.fetch(row.name).live_objects, row.live_objects, 60
      assert_in_delta entries.fetch(row.name).live_bytes, row.live_bytes, 60 * 200
    end
    assert_a_table_of tags
  end

  # Code that copies the fiber-locals of a thread can set the tag's to anything.
  def test_a_tag_that_is_none
    alive = child_json(<<~RUBY, requires: %w[json])
      Memscope.tag("known") { nil }
      Memscope::ObjectProfile.start
      [50_000_000, 1 << 40, -1, :text].each do |value|
        Thread.current[:__memscope_tag__] = value
        Fiber.new { 50_000.times { Object.new } }.resume
        50_000.times { Object.new }
      end
      puts JSON.generate(Memscope::ObjectProfile.stop.class.name)
    RUBY

    assert_equal "Memscope::Profile", alive
  end

  private

  def assert_a_table_of(tags)
    first = tags.top(50)

    assert_equal [60, 51, "10 other tags"], [tags.count, first.size, first.last.name]
    assert_equal tags.sum(&:runs), first.sum(&:runs)
    assert_equal tags.rows, tags.top(60)
    assert_includes text(tags, limit: 5), "55 other tags"
    assert_equal tags, Memscope::Tags.from_json(tags.to_json)
  end
end
