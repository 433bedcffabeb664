# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/rails_server"
require "json"
require "tmpdir"

# Wherever memory is called "in use", an upper bound of the garbage in it is given, and it holds: GC.start frees no more
# than that. After a GC, the bound is close to nothing.
class GarbageTest < MemscopeTest
  parallelize_me!

  MEBIBYTE = 1_048_576
  # Each makes 30 to 60 MiB and lets go of it. The arrays are too large for Ruby 3.2's transient heap.
  GARBAGE = {
    "strings" => "200_000.times.map { |number| number.to_s * 30 }",
    "large strings" => "60.times.map { |number| number.chr * 1_048_576 }",
    "arrays" => "10_000.times.map { |number| Array.new(400, number) }",
    "psych" => "600.times.map { |number| Psych::Parser.new.tap { |parser| parser.parse('a: 1') } }",
    "what survived a major gc" => "200_000.times.map { |n| n.to_s * 30 }.tap { GC.start }"
  }.freeze

  # Bytes that a major GC frees: live slots, and malloc memory in use.
  MEASURE = <<~RUBY
    IN_USE = lambda do |ledger|
      ledger.dig(:ruby_heap, :live_slots).bytes + ledger[:malloc].detail[:in_use_bytes]
    end
    READ = ->(**options) { Memscope.ledger(deep: true, **options) }
    def make = (%<garbage>s) && nil
    GC.start
    GC.disable # except where GC.start is called
    Thread.new { make }.join
    before = READ.call
    after = READ.call(gc: true)
    puts JSON.generate(bound: before.garbage_max_bytes, after: after.garbage_max_bytes,
                       freed: IN_USE.call(before) - IN_USE.call(after), collected: after.collected.to_h,
                       text: before.to_s)
  RUBY

  GARBAGE.each do |name, script|
    both_allocators "garbage of #{name}", in_full: name == "strings" ? [] : [:jemalloc] do |preload|
      skip_under_sanitizer
      read = child_json(format(MEASURE, garbage: script), requires: %w[json psych memscope], preload: preload)

      assert_operator read["freed"], :>=, 16 * MEBIBYTE, read
      assert_operator read["bound"], :>=, read["freed"], read
      assert_operator read["after"], :<, 2 * MEBIBYTE, read
      assert_operator read.dig("collected", "pause_us"), :positive?
      assert_match(/The amount of garbage in live slots and malloc memory is unknown\. --gc/,
                   read["text"].gsub(/\s+/, " "))
    end
  end

  # Compares each part with what a collection then frees, by the census and by malloc's own statistics.
  SPLIT = <<~RUBY
    IN_USE = lambda do
      totals = Memscope.snapshot(malloc: true)
      next totals.glibc.values_at(:uordblks, :hblkhd).sum unless totals.jemalloc

      totals.jemalloc[:allocated_bytes] - totals.jemalloc[:tcache_bytes]
    end
    LIVE = -> { Memscope.census.total_slot_bytes }
    PARTS = lambda do |ledger|
      found = ledger.each_path.select { |_path, row, _above| %i[reachable garbage].include?(row.id) }
      found.to_h { |path, row, above| [path, [row.bytes, above.last.bytes]] }
    end
    4.times { GC.start }
    GC.disable
    kept = Array.new(2_000) { "k" * 1_500 }
    fresh = Memscope.ledger(garbage: true)
    Thread.new { 30_000.times.map { |number| number.to_s * 300 } && nil }.join
    before = Memscope.ledger(garbage: true, strict: true)
    counts = [LIVE.call, IN_USE.call]
    GC.enable
    GC.start
    freed = counts.zip([LIVE.call, IN_USE.call]).map { |then_, now| then_ - now }
    puts JSON.generate(fresh: fresh.garbage_bytes, parts: PARTS.call(before), freed: freed, text: before.to_s,
                       sum: before.each_leaf.sum(&:bytes) - before.rss_bytes, bytes: before.garbage_bytes,
                       most: before.garbage_max_bytes, again: Memscope::Ledger.from_json(before.to_json) == before,
                       reason: before.reasons[:garbage])
  RUBY

  both_allocators "a ledger splits what is in use into reachable and garbage" do |preload|
    skip_under_sanitizer
    read = child_json(SPLIT, requires: %w[json memscope], preload: preload)
    garbage = read["parts"].select { |path, _bytes| path.end_with?("/garbage") }.transform_values(&:first)
    slots = garbage.delete("ruby_heap/live_slots/garbage")
    live, in_use = read["freed"]

    assert_equal 0, read["sum"]
    assert read["again"]
    read["parts"].group_by { |path, _bytes| path[%r{.*/}] }.each_value do |parts|
      assert_equal(parts[0][1][1], parts.sum { |_path, (bytes, _parent)| bytes })
    end

    assert_operator read["fresh"], :<, MEBIBYTE
    assert_operator garbage.values.sum, :>, 30 * MEBIBYTE
    assert_in_delta in_use, garbage.values.sum, in_use / 25
    assert_in_delta live, slots, live / 25

    assert_equal garbage.values.sum + slots, read["bytes"]
    assert_operator read["most"], :>=, read["bytes"]
    assert_match(/ MiB of live slots and of malloc memory in use, resident or not, is garbage/,
                 read["text"].gsub(/\s+/, " "))
    assert_match(/\Aa lower bound: some garbage may own more blocks, which count as reachable \(/, read["reason"])
  end

  # Where nobody can tell what is garbage, the rows are as without the option, and a reason says why.
  def test_rows_are_not_split_where_garbage_is_unknown
    read = child_json(<<~RUBY, requires: %w[json memscope])
      Warning[:experimental] = false
      ractor = Ractor.new { Ractor.receive }
      ledger = Memscope.ledger(garbage: true)
      puts JSON.generate(ids: ledger.each_leaf.map(&:id), garbage: ledger.garbage_bytes, reason: ledger.reasons[:garbage],
                         sum: ledger.each_leaf.sum(&:bytes) - ledger.rss_bytes)
      ractor.send(1)
    RUBY

    refute_includes read["ids"], "garbage"
    assert_includes read["ids"], "in_use"
    assert_equal [nil, 0], read.values_at("garbage", "sum")
    assert_match(/other Ractors are alive/, read["reason"])
  end

  def test_garbage_is_unknown_under_another_malloc
    mimalloc = Dir["/usr/lib/*/libmimalloc.so*"].min or skip "mimalloc is not installed"
    most, reasons = child_json(<<~RUBY, preload: mimalloc, requires: %w[json memscope])
      ledger = Memscope.ledger(deep: true, objects: true, garbage: true)
      puts JSON.generate([ledger.garbage_max_bytes, ledger.reasons])
    RUBY

    assert_nil most
    assert_equal "the blocks of this malloc cannot be listed", reasons["garbage"]
    assert_equal reasons["deep"], reasons["objects"]
  end

  # A worker shares its heap with its master until a GC writes to it. Shared pages that are returned do not count.
  def test_what_a_collection_unshares
    skip_under_sanitizer
    read = child_json(<<~RUBY, requires: %w[json memscope])
      kept = Array.new(300_000) { |number| +"" << number.to_s }
      dropped = Array.new(32) { "x" * 2_000_000 }
      GC.start
      reader, writer = IO.pipe
      pid = fork do
        dropped.clear
        before = Memscope.process_memory
        collected = Memscope.ledger(gc: true).collected
        lost = Memscope.process_memory.uss_bytes - before.uss_bytes
        writer.write(JSON.generate(lost: lost, unshared: collected.unshared_bytes, returned: collected.returned_bytes))
        exit!
      end
      writer.close
      puts reader.read
      Process.wait(pid)
    RUBY

    assert_operator read["lost"], :>, MEBIBYTE
    assert_operator read["returned"], :>, 48 * MEBIBYTE
    assert_in_delta read["lost"], read["unshared"], 2 * MEBIBYTE
  end

  # A dry run marks in a forked child what gc would free, so it predicts the same trim as a dry run after a real GC (gc:
  # true).
  def test_a_dry_run
    skip_under_sanitizer
    read = child_json(<<~RUBY, requires: %w[json memscope])
      Thread.new { 30_000.times.map { |number| number.to_s * 300 } && nil }.join # none fits in a slot
      plain = Memscope.purge(dry_run: true)
      collected = Memscope.purge(dry_run: true, gc: true)
      puts JSON.generate(plain: plain.to_s, collected: collected.to_s,
                         predicted: [plain, collected].map { |result| result[:trim].predicted_bytes })
    RUBY
    plain, collected = read["predicted"]

    assert_match(/Garbage was collected first, in/, read["collected"])
    assert_operator plain, :>, 20 * MEBIBYTE
    assert_in_delta collected, plain, collected / 5
  end

  # Rows as a database returns them, which become one large text: some 50 MB a request.
  REPORT = <<~RUBY
    class ReportsController < ActionController::Base
      def index
        rows = Array.new(80_000) do |number|
          { id: number, name: "customer \#{number}", note: "x" * (number % 300), tags: [number.to_s, "paid"] }
        end
        render(plain: rows.map { |row| row.values.flatten.join(",") }.join("\n").bytesize.to_s)
      end
    end
    App.routes.append { get "/report", to: "reports#index" }
  RUBY

  both_allocators "four reports of a rails application at once", in_full: %i[glibc jemalloc] do |preload|
    skip_under_sanitizer
    levers = preload ? %w[gc tcache purge] : %w[gc trim]
    Dir.mktmpdir do |directory|
      RailsServer.run(directory, REPORT, preload, threads: 4) do |server|
        sizes = Array.new(4) { Thread.new { Integer(server.get("/report")) } }.map(&:value)
        before = private_bytes(server)
        dry = purge(server, "--dry-run", *levers)
        between = private_bytes(server) # jemalloc returns dirty pages by itself, also during the dry run
        purge(server, *levers)
        lost = [between, before].map { |bytes| bytes - private_bytes(server) }

        assert_operator sizes.min, :>, 9_000_000
        assert_operator lost.max, :>, 50 * MEBIBYTE
        least, most = dry.predicted_private.minmax

        assert_operator least * 0.9, :<=, lost.max, dry
        assert_operator most * 1.1, :>=, lost.min, dry
        assert_operator most - least, :<=, lost.max * 0.3, dry # Ruby's sweep may begin at any page
      end
    end
  end

  private

  def purge(server, *arguments)
    ran = server.memscope("purge", "--pid", server.pid.to_s, "--json", *arguments)

    assert_predicate ran, :success?, ran
    Memscope::Purge::Result.from_h(JSON.parse(ran.out))
  end

  # As the kernel counts them.
  def private_bytes(server)
    File.read("/proc/#{server.pid}/smaps_rollup").scan(/^Private_\w+: +(\d+)/).flatten.sum(&:to_i) * 1024
  end
end
