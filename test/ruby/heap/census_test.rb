# frozen_string_literal: true

require_relative "../../test_helper"

# The census against Ruby's own counts of the same heap, in children whose heap nothing else changes.
class CensusOfTheHeapTest < MemscopeTest
  parallelize_me!

  # Objects of every kind that a census resolves. The census is taken twice before it counts: what its call itself makes
  # (call caches) is made then.
  PLANTED = <<~'RUBY'
    require "json"
    require "objspace"

    NATIVE = Memscope.const_get(:Native)
    class Planted; def initialize = @a = 1; end
    class Heir < Planted; end
    class Text < String; end
    class Rows < Array; end
    class Pairs < Hash; end
    Point = Struct.new(:x, :y)
    Wide = Struct.new(*Array.new(100) { |index| :"field#{index}" })
    anonymous = Class.new(Heir)
    bare = Class.new(BasicObject)
    module_of_none = Module.new
    nested = module_of_none.const_set(:Nested, Class.new(Planted))
    KEPT = [Array.new(1_000) { Planted.new }, Array.new(100) { Planted.new.tap { |one| def one.own = 1 } },
            Array.new(10) { Planted.new.extend(Comparable) }, Array.new(50) { anonymous.new },
            Array.new(7) { nested.new }, Array.new(20) { bare.new },
            Array.new(300) { |index| Text.new("t" * (index * 3)) },
            Array.new(300) { |index| Rows.new(index) }, Array.new(40) { |index| Pairs[(0...index).map { [_1, 1] }] },
            Array.new(30) { |index| Point.new(index, 1) }, Array.new(20) { |index| Wide.new(index) },
            Class.new { 60.times { |n| define_method("m#{n}") {} } }]
    NAMED = Array.new(200) { |index| Text.new("named").tap { |text| 20.times { text.instance_variable_set("@v#{_1}", 1) } } }
    RACK = [Array.new(5_000) { |index| "text #{index}" }, ENV.to_h, (1..9).map { |index| 10**(40 * index) }]

    def rows(body, grouping) = body[grouping].to_h { |row| [row[:name], row] }
    def sums(body, grouping) = %i[count slot_bytes memsize_bytes old_count].map { |key| body[grouping].sum { _1[key] } }

    # What a value is made of, itself included.
    def made(value)
      case value
      when Hash then 1 + value.each_value.sum { |item| made(item) }
      when Array then 1 + value.sum { |item| made(item) }
      when String then 1
      else 0
      end
    end
  RUBY

  def test_counts_equal_rubys_in_the_same_stop
    answer = child_json(<<~RUBY)
      #{PLANTED}
      counts = ObjectSpace.count_objects
      counted = nil
      3.times do
        GC.start
        GC.disable
        before = GC.stat(:total_allocated_objects)
        ObjectSpace.count_objects(counts)
        body = NATIVE.census(false, nil, nil)
        after = GC.stat(:total_allocated_objects)
        counted = [counts.to_h.dup, body, GC.stat(:old_objects), after - before]
        GC.enable
      end
      counts, body, old, allocated = counted
      types = rows(body, :types)
      free, total = [counts.delete(:FREE), counts.delete(:TOTAL)]
      puts JSON.generate(
        wrong: counts.reject { |type, count| types[type.name]&.fetch(:count) == count },
        others: types.keys - counts.keys.map(&:name), total: [body[:total_count], total - free],
        old: [body[:total_old_count], old], made: [allocated, made(body)],
        sums: %i[classes types slot_sizes ages].map { |grouping| sums(body, grouping) },
        totals: body.values_at(:total_count, :total_slot_bytes, :total_memsize_bytes, :total_old_count),
        fields: sums({ fields: [rows(body, :imemos)["imemo_fields"]].compact }, :fields)
      )
    RUBY

    assert_empty answer["wrong"]
    assert_empty answer["others"]
    %w[total old made].each { |pair| assert_equal(*answer[pair], pair) }
    by_class, *others = answer["sums"]

    assert_equal [answer["totals"]], others.uniq
    assert_equal answer["totals"][1, 2], by_class[1, 2]
    assert_equal answer["totals"].first - (RUBY_VERSION < "4" ? 0 : answer["fields"].first), by_class.first
  end

  # A write to an object copies its page: the objects on copied pages are a forked process's own.
  def test_private_objects_are_those_on_pages_that_were_written_to
    alone, inherited, written, in_child = child_json(<<~RUBY)
      require "json"
      class Kept; def initialize = @number = 1; end
      class Written < Kept; end
      KEPT = [Kept, Written].map { |owner| Array.new(20_000) { owner.new } }
      counts = lambda do |census|
        rows = census.by(:class).to_h { |row| [row.name, row.count] }
        [rows.fetch("Kept", 0), rows.fetch("Written", 0), census.private?, census.walked_in]
      end
      counts.call(Memscope.census(private: true))
      4.times { GC.start }
      GC.disable
      alone = counts.call(Memscope.census(private: true))
      reader, writer = IO.pipe
      fork do
        own = -> { counts.call(Memscope.census(private: true)) }
        before = own.call
        KEPT.last.each { |object| object.instance_variable_set(:@number, 2) }
        child = counts.call(Memscope::Census.bounded(private: true, budget_us: 0))
        writer.write(JSON.generate([before, own.call, child]))
        writer.close
        exit!(0)
      end
      writer.close
      puts JSON.generate([alone, *JSON.parse(reader.read)])
    RUBY

    assert_equal [20_000, 20_000, true, "process"], alone
    # Of the first, those on a page with some of the second, or with an object that the test itself makes.
    assert_operator inherited.first(2).max, :<, 1_000
    [written, in_child].each do |kept, whole, *|
      assert_operator kept, :<, 1_000
      assert_in_delta 20_000, whole, 10 # some slots begin on one page, and have @number on the next
    end
    assert_equal "child", in_child.last
  end

  # Two copies of one process, so that neither sees what the other has made. All pages of a copy are resident.
  def test_slot_bytes_are_the_ledgers_live_slots
    ledger, *censuses = child_json(<<~RUBY)
      #{PLANTED}
      calls = [[:ledger, false, false, true, false], [:census, false, nil, nil], [:census, false, 0, nil]]
      2.times { calls.each { |call| NATIVE.public_send(*call) } }
      pipes = calls.map { IO.pipe }
      GC.start
      GC.disable
      calls.zip(pipes) do |call, pipe|
        fork { pipe.last.write(JSON.generate(NATIVE.public_send(*call))); exit!(0) }
      end
      ledger, *censuses = pipes.map { |reading, writing| writing.close; JSON.parse(reading.read) }
      heap = ledger["rows"].find { |row| row["id"] == "ruby_heap" }
      live = heap["children"].find { |row| row["id"] == "live_slots" }
      puts JSON.generate([live["bytes"], *censuses.map { |census| census["total_slot_bytes"] }])
      Process.waitall
    RUBY

    assert_operator ledger, :>, 0
    assert_equal [ledger, ledger], censuses
  end

  def test_memsize_is_what_objects_say
    all, sum, planted, unasked = child_json(<<~RUBY)
      #{PLANTED}
      APART = [Module, Thread, Fiber].freeze
      # Hidden objects, of C types such as autoload_const too; fatal is a class.
      NAMES = %r{\\A(?:T_\\w+|imemo_\\w+|Class|Module|Refinement|Thread|Fiber|(?!fatal\\z)[a-z][\\w/]+|VM/.+)\\z}
      def memsize = ObjectSpace.memsize_of_all(BasicObject) - APART.sum { |type| ObjectSpace.memsize_of_all(type) }
      result = nil
      3.times do
        GC.start
        GC.disable
        all = memsize
        body = NATIVE.census(false, nil, nil)
        classes = rows(body, :classes)
        planted = [Text, Rows, Pairs, Point, Wide, Integer, Planted].map do |type|
          heirs = type == Planted ? [Heir] : []
          [classes[type.name][:memsize_bytes], ObjectSpace.memsize_of_all(type) - heirs.sum { ObjectSpace.memsize_of_all(_1) }]
        end
        result = [all, classes.sum { |name, row| name.match?(NAMES) ? 0 : row[:memsize_bytes] }, planted,
                  Memscope::Census.read.reasons[:memsize_bytes]]
        GC.enable
      end
      puts JSON.generate(result)
    RUBY
    # What holds an object's variables belongs to its class from Ruby 4.0 on, and memsize_of does not know it. Of an
    # anonymous module's class no name is known.
    text, *others, plain = planted

    if RUBY_VERSION < "4"
      assert_equal all, sum
      assert_equal(*text)
    else
      assert_operator text.first - text.last, :>=, 200 * 20 * 8
    end

    assert_match(/\Aa lower bound without the malloc memory of these objects: \d of type Fiber or Thread/, unasked)

    others.each { |pair| assert_equal(*pair) }
    assert_operator plain.first, :>=, 1_110 * 40
  end

  def test_classes_are_those_that_people_know
    classes, imemos = child_json(<<~RUBY)
      #{PLANTED}
      GC.start
      census = Memscope.census
      puts JSON.generate([census.by(:class), census.by(:imemo)].map { |rows| rows.to_h { |row| [row.name, row.count] } })
    RUBY

    assert_equal({ "Planted" => 1_110, "Heir (anonymous subclass)" => 50, "Planted (anonymous subclass)" => 7,
                   "BasicObject (anonymous subclass)" => 20, "Text" => 500, "Rows" => 300, "Pairs" => 40,
                   "Point" => 30 },
                 classes.slice("Planted", "Heir (anonymous subclass)", "Planted (anonymous subclass)",
                               "BasicObject (anonymous subclass)", "Text", "Rows", "Pairs", "Point"))
    assert_operator classes.fetch("String"), :>=, 5_000
    assert_operator classes.fetch("T_ICLASS"), :>=, 10
    assert_empty(classes.keys.grep(/0x/), "no name holds an address")
    assert_operator imemos.fetch("imemo_iseq"), :>=, 60
    assert_equal imemos.fetch("imemo_ment"), classes.fetch("imemo_ment")
    assert_equal [RUBY_VERSION >= "4", false],
                 [imemos.key?("imemo_fields"), classes.fetch("imemo_fields", 0).positive?]
  end

  both_allocators "the child finds what the process finds" do |preload|
    process, child = child_json(<<~RUBY, preload: preload)
      #{PLANTED}
      GROUPINGS = %i[classes types imemos slot_sizes ages].freeze
      budgets = [1_000_000_000, 0]
      2.times { budgets.each { |budget| Memscope::Census.bounded(budget_us: budget) } }
      pipes = budgets.map { IO.pipe }
      GC.start
      budgets.zip(pipes) do |budget, pipe|
        fork { pipe.last.write(Memscope::Census.bounded(budget_us: budget).to_json); pipe.last.close; exit!(0) }
      end
      puts "[\#{pipes.map { |reading, writing| writing.close; reading.read }.join(",")}]"
      Process.waitall
    RUBY
    same = %w[total_count total_slot_bytes total_memsize_bytes total_old_count classes types imemos slot_sizes ages]

    assert_equal(%w[process child], [process, child].map { |census| census["walked_in"] })
    assert_equal process.slice(*same), child.slice(*same)
    assert_equal [nil, true], [process["pause_us"], child["pause_us"].positive?]
  end

  # A collection under way is finished first; while Ruby stresses or compacts its heap, the sums hold.
  def test_beside_the_garbage_collector
    sums = child_json(<<~RUBY, timeout: 120)
      #{PLANTED}
      def closed?(census) = %i[type slot_size age].all? { |by| census.by(by).sum(&:count) == census.total_count }
      results = []
      garbage = Thread.new { loop { Array.new(1_000) { "x" * 100 } } }
      2.times { results << closed?(Memscope::Census.bounded(budget_us: 0)) << closed?(Memscope.census) }
      garbage.kill.join
      GC.auto_compact = true if GC.respond_to?(:auto_compact=) && RUBY_VERSION >= "3.2.1"
      2.times { results << closed?(Memscope.census(gc: true)) }
      GC.stress = 3 # no major collections, and lazy sweeping
      results << closed?(NATIVE.then { Memscope.census })
      GC.stress = false
      puts JSON.generate(results.tally)
    RUBY

    assert_equal({ "true" => 7 }, sums)
  end

  # MEMSCOPE_CENSUSES=10000 for as many calls.
  def test_leaves_nothing_behind
    calls = Integer(ENV.fetch("MEMSCOPE_CENSUSES", "100"))
    grown, files, maps, children = child_json(<<~RUBY, timeout: 120)
      #{PLANTED}
      def files = Dir.children("/proc/self/fd").size
      def maps = File.foreach("/proc/self/maps").count
      def many(count) = count.times { |index| index % 50 == 0 ? Memscope::Census.bounded(budget_us: 0) : NATIVE.census(false, nil, nil) }
      many(200)
      GC.start
      before = [Memscope.rss, files, maps]
      many(#{calls})
      GC.start
      after = [Memscope.rss, files, maps]
      puts JSON.generate([*after.zip(before).map { |to, from| to - from },
                          Dir["/proc/self/task/*/children"].sum { |path| File.read(path).split.size }])
    RUBY

    assert_equal [0, 0], [files, children]
    assert_operator maps, :<=, 20
    assert_operator grown, :<=, 8 << 20 unless ChildProcess::SANITIZER
  end

  def test_is_refused_beside_other_ractors
    census = child_json(<<~RUBY, ruby_args: ["-W0"])
      require "json"
      ractor = Ractor.new { Ractor.receive }
      puts Memscope.census.to_json
      ractor.send(nil)
    RUBY

    assert_equal [nil, nil, [], []], census.values_at("total_count", "walked_in", "classes", "ages")
    assert_equal "other Ractors are alive: objects cannot be walked", census["reasons"]["total_count"]
  end

  def test_a_child_that_is_killed_is_a_reason
    census, children = child_json(<<~RUBY, requires: ["memscope_test"])
      #{PLANTED}
      slow = Host.sized(1, 8_000_000_000)
      KEPT << Array.new(400_000) { Object.new }
      children = -> { Dir["/proc/self/task/*/children"].map { |path| File.read(path) }.join(" ") }
      reader = Thread.new { Memscope::Census.bounded(budget_us: 0) }
      Thread.pass until children.call.to_i.positive?
      Process.kill(:KILL, children.call.to_i)
      puts JSON.generate([reader.value.to_h, children.call.to_i])
    RUBY

    assert_nil census["total_count"]
    assert_match(/\Aleft out, since a census would stop Ruby for about \d+ ms and .*the child ended before it answered/,
                 census["reasons"]["total_count"])
    assert_equal 0, children
  end

  # Each object takes a third of a millisecond to tell its size: their type is left out, and named.
  def test_slow_size_functions_are_left_out
    memsize, reason = child_json(<<~RUBY, requires: ["memscope_test"])
      #{PLANTED}
      slow = Array.new(5_000) { Host.sized(1 << 10, 300_000) }
      census = Memscope.census
      puts JSON.generate([census.total_memsize_bytes, census.reasons[:memsize_bytes]])
    RUBY

    assert_operator memsize, :>, 0
    assert_match(/ of type Host::Slow\b/, reason)
  end
end
