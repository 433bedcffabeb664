# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/printed"
require "memscope/report"

# Memscope.tags: what was counted and sampled by tag, beside Ruby's and the allocator's own counts.
class TagsTest < MemscopeTest
  include Printed

  WINDOWS = { windows: 100, allocations: 1_000_000, windows_share: 0.5, equal_windows: 100.0 }.freeze
  TOTALS = { name: "a", runs: 1000, running: 0, malloc_runs: 1000.0, profiled_runs: 1000.0, counted: 500_000,
             allocated_objects: 1_000_000.0, squares: 1e10, products: 1e10, live_samples: 30, live_objects: 3000,
             live_bytes: 120_000, judged_runs: 800.0, samples: 0, shares: [].freeze }.freeze

  def row(samples, **changes)
    shares = Array.new(samples) { |window| [window + 1, 10_000, 100, 1].freeze }.freeze
    windows = Memscope::Tags::Windows.capture(WINDOWS.dup)
    totals = Memscope::Tags::Totals.capture({ **TOTALS, samples: samples, shares: shares, **changes })
    Memscope::Tags::Row.of([totals], profiled: windows, judged: windows, sample_objects: 100.0)
  end

  # 16 samples of 100 objects, in 16 of 100 windows: by hand, 1,600 objects in 0.8 thousand runs; the error is that of
  # 16 independent samples, or more.
  def test_an_estimate_with_its_error
    found = row(16)

    assert_in_delta 2000, found.retained_objects
    assert_in_delta 1000, found.allocated_objects
    assert_operator found.retained_objects_error, :>=, 2000 / Math.sqrt(16)
    assert_operator found.retained_objects_error, :<, 2000 * 0.35
    assert_nil found.retained_objects_below
  end

  # The rule of three: none of many samples means fewer than three, with 95 % confidence.
  def test_few_samples_are_a_bound
    none = row(0)

    assert_nil none.retained_objects
    assert_in_delta 3 * 100 / 0.8, none.retained_objects_below, 1
    assert_operator row(9).retained_objects_below, :>, 9 * 100 / 0.8
    assert_nil row(0, live_samples: 9).live_objects
    assert_nil row(16, judged_runs: 0.0).retained_objects
    assert_nil row(16, counted: 0).allocated_objects
  end

  # Of 40 samples, 20 stay, and 20 others replace the rest: no growth.
  def test_what_is_replaced_is_no_growth
    shares = ->(windows) { windows.map { |window| [window, 10_000, 100, 1].freeze }.freeze }
    earlier = Memscope::Tags::Totals.capture({ **TOTALS, samples: 40, shares: shares[1..40] })
    later = Memscope::Tags::Totals.capture({ **TOTALS, runs: 2000, judged_runs: 1800.0, samples: 40,
                                                       shares: shares[(1..20).to_a + (101..120).to_a] })
    between = later.since(earlier)

    assert_equal [1000, 1000.0, 40], [between.runs, between.judged_runs, between.samples]
    windows = Memscope::Tags::Windows.capture(WINDOWS.dup)
    row = Memscope::Tags::Row.of([between], judged: windows, sample_objects: 100.0)

    assert_in_delta 0, row.retained_objects
    assert_operator row.retained_objects_error, :>=, 100 * Math.sqrt(40)
  end

  # A sample of a later window stands for more objects: one that came and one that went are two, not a hundred.
  def test_few_changes_of_uneven_weight_are_a_bound
    earlier = Memscope::Tags::Totals.capture({ **TOTALS, samples: 1, shares: [[1, 10_000, 100, 1].freeze].freeze })
    later = Memscope::Tags::Totals.capture({ **TOTALS, judged_runs: 1800.5, samples: 1,
                                                       shares: [[9, 1_000_000, 10_000, 1].freeze].freeze })
    between = later.since(earlier)

    assert_equal [2, 1000.5], [between.samples, between.judged_runs]
    assert_nil Memscope::Tags::Row.of([between], judged: Memscope::Tags::Windows.capture(WINDOWS.dup),
                                                 sample_objects: 100.0).retained_objects
  end

  # An endpoint that has filled a cache in its only request, and one that keeps an object in each of many requests.
  def test_the_leak_comes_before_a_single_request_that_keeps_more
    shares = ->(count) { Array.new(count) { |window| [window, 10_000, 100, 1].freeze }.freeze }
    once = { runs: 1, judged_runs: 1.0, samples: 20, shares: shares[20] }
    always = { runs: 9000, judged_runs: 9000.0, samples: 90, shares: shares[90] }
    totals = { "once" => once, "always" => always, "never" => {} }.map do |name, numbers|
      Memscope::Tags::Totals.capture({ **TOTALS, name: name, **numbers })
    end

    assert_equal %w[always once never], totals.sort_by(&:rank).map(&:name)
  end

  def test_windows_in_between
    earlier, later = [[100, 1_000_000, 0.5, 100.0], [300, 2_000_000, 0.75, 200.0]].map do |windows, count, share, equal|
      Memscope::Tags::Windows.capture({ windows: windows, allocations: count, windows_share: share,
                                        equal_windows: equal })
    end
    between = later.since(earlier)

    assert_equal [200, 1_000_000, 1.0], [between.windows, between.allocations, between.windows_share]
    assert_in_delta 100, between.equal_windows
    assert_nil earlier.since(later)
    assert_nil later.since(later)
  end

  # A sample stands for 100 of the first million allocations, which are all in windows, and for 1,000 of the next ten
  # million, a tenth of which are.
  def test_what_a_sample_in_between_stands_for
    earlier, later = [[1_000_000, 1.0, 100.0], [11_000_000, 2.fdiv(11), 550.0]].map do |allocations, share, objects|
      windows = { **WINDOWS, windows: allocations / 10_000, allocations: allocations, windows_share: share }
      Memscope::Tags.from_h({ **Memscope.tags.to_h, session: 1, profiled: windows, judged: windows,
                                                    sample_objects: objects })
    end

    assert_in_delta 1000, (later - earlier).sample_objects
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

    assert_in_delta found["objects"], row.allocated_objects, [5 * row.allocated_objects_error, 10].max
    assert_in_delta 1000, row.allocated_objects, 20
  end

  # Each window ends within a call that allocates for long before a postponed job can run.
  LONG_CALLS = <<~RUBY
    text = "a," * 300_000
    Memscope::ObjectProfile.start
    60.times { Memscope.tag("split") { text.split(",").size } }
    puts JSON.generate(tags: Memscope.tags.to_h, windows: Memscope::ObjectProfile.snapshot.windows)
  RUBY

  def test_allocations_after_the_end_of_a_window_are_not_counted_in_it
    skip_under_sanitizer
    found = child_json(LONG_CALLS, requires: ["json"])
    row = Memscope::Tags.from_h(found["tags"]).first

    assert_operator row.totals.counted, :<=, 20_000 * found["windows"]
    assert_in_delta 300_000, row.allocated_objects, [5 * row.allocated_objects_error, 15_000].max
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

  # 100 runs of 200,000 bytes in one profile, 400 of 50,000 in the next one.
  def test_a_malloc_profile_that_was_started_in_between_counts_from_its_beginning
    skip_under_sanitizer
    found = child_json(<<~RUBY, requires: ["json"])
      start = -> { Memscope::MallocProfile.start(backend: :imports, rate: 4096) }
      run = ->(times, bytes) { times.times { Memscope.tag("a") { 10.times { "k" * (bytes / 10) } } } }
      start.call
      run.call(100, 200_000)
      earlier = Memscope.tags
      Memscope::MallocProfile.stop
      start.call
      run.call(400, 50_000)
      puts (Memscope.tags - earlier).to_json
    RUBY
    row = Memscope::Tags.from_h(found).first

    assert_equal 400, row.runs
    assert_in_delta 50_000, row.malloc_allocated_bytes, 5_000
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

        before = Memscope.tags
        run.call
        continued = Memscope.tags
        Memscope::ObjectProfile.stop
        run.call
        Memscope::ObjectProfile.start(budget: 1)
        run.call
        anew = Memscope.tags
        print JSON.generate([continued, continued - before, anew, anew - continued].map(&:to_h))
      end)
    RUBY
    rows = found.map { |tags| Memscope::Tags.from_h(tags).first }

    assert_equal [3000, 1500, 6000, 3000], rows.map(&:runs)
    rows.each { |row| assert_in_delta 2000, row.retained_objects, 5 * row.retained_objects_error }
    assert_in_delta rows[2].retained_objects, rows[3].retained_objects
    assert_equal [2500.0, 1000.0], rows.map { |row| row.totals.judged_runs }.values_at(0, 2)
  end

  # A fiber is left inside a TracePoint, where no hook sees the switch, and its thread ends. The next one reuses its
  # native thread.
  def test_a_thread_begins_without_a_tag
    skip_under_sanitizer
    row = Memscope::Tags.from_h(child_json(<<~RUBY, requires: ["json"])).first
      Memscope::ObjectProfile.start(budget: 1)
      5.times do
        Thread.new do
          trace = TracePoint.new(:line) { trace.disable && Fiber.new { Memscope.tag("a") { Fiber.yield } }.resume }
          trace.enable
          nil
        end.join
        Thread.new { 1000.times { Object.new } }.join
      end
      puts Memscope.tags.to_json
    RUBY

    assert_equal 5, row.runs
    assert_operator row.totals.counted, :<, 500
  end

  def test_the_difference_of_two_processes_is_refused
    one, other = Array.new(2) { Memscope::Tags.from_h(child_json("puts Memscope.tags.to_json", requires: ["json"])) }
    error = assert_raises(ArgumentError) { one - other }

    assert_equal "Memscope::Tags#-: pid: given #{other.pid}, allowed: #{one.pid}, as in the later reading",
                 error.message
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

  # What a profile of objects says by tag is the same.
  LIVE = <<~RUBY
    Memscope::ObjectProfile.start(budget: 1)
    kept = []
    3.times do
      2_000.times { |index| Memscope.tag("tag \#{index.odd? ? 0 : index % 120 / 2}") { kept << "k" * 100 << [index] } }
      GC.start
    end
    puts JSON.generate(tags: Memscope.tags.to_h, profile: Memscope::ObjectProfile.snapshot.to_h)
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
