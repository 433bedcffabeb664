# frozen_string_literal: true

require_relative "../../test_helper"
require "json"
require "tmpdir"

# What has grown between dumps, against the dumps' own lines.
class HeapGrowthTest < MemscopeTest
  parallelize_me!

  # Before the second dump come 500 Orders that stay and 300 that do not; before the third, the 300 go and 200 come.
  PROGRAM = <<~'RUBY'
    require "objspace"
    ObjectSpace.trace_object_allocations_start if %w[traced traced_apart].include?(ARGV[1])
    class Order
      def initialize(number) = (@lines = [+"secret #{number}", { number => +"x" * 100 }])
    end
    module Bus; HANDLERS = []; end
    dump = lambda do |number|
      GC.start
      next Memscope.dump("#{ARGV[0]}#{number}", format: :objspace, gc: true) if ARGV[1] == "memscope"

      File.open("#{ARGV[0]}#{number}", "w") { |file| ObjectSpace.dump_all(output: file) }
    end
    Bus::HANDLERS << Order.new(0)
    dump.call(1)
    ObjectSpace.trace_object_allocations_start if ARGV[1] == "traced_later"
    ObjectSpace.trace_object_allocations_stop if ARGV[1] == "traced_apart"
    ObjectSpace.trace_object_allocations_clear if ARGV[1] == "traced_apart"
    1.upto(500) { |number| Bus::HANDLERS << Order.new(number) }
    $passing = Array.new(300) { |number| Order.new(number) }
    dump.call(2)
    ObjectSpace.trace_object_allocations_start if ARGV[1] == "traced_apart"
    $later = Array.new(200) { |number| Order.new(number) } # not where the passing ones were
    $passing.clear
    dump.call(3)
  RUBY

  # Yields the paths of the three dumps.
  def with_dumps(kind, **options)
    Dir.mktmpdir("memscope") do |directory|
      child = ChildProcess.run("ARGV.replace [#{"#{directory}/".dump}, #{kind.to_s.dump}]\n#{PROGRAM}",
                               requires: ["memscope"], **options)

      assert_predicate child, :success?, child
      yield [1, 2, 3].map { |number| "#{directory}/#{number}" }
    end
  end

  NO_OBJECTS = %w[SHAPE ZOMBIE].freeze

  # {address => line}, of objects only.
  def objects(path)
    (@objects ||= {})[path] ||= begin
      lines = File.foreach(path).grep(/"address"/).map { |line| JSON.parse(line.scrub) }
      lines.reject { |line| NO_OBJECTS.include?(line["type"]) }.to_h { |line| [line["address"], line] }
    end
  end

  def same?(earlier, last)
    return false unless earlier && last && earlier["type"] == last["type"]
    return earlier["generation"] == last["generation"] if last["generation"]

    earlier.values_at("class", "imemo_type") == last.values_at("class", "imemo_type")
  end

  # The lines of the last dump that are new.
  def expected(first, *second, last)
    first, second, last = [first, second.first || last, last].map { |path| objects(path) }
    last.values.select { |line| !same?(first[line["address"]], line) && same?(second[line["address"]], line) }
  end

  def assert_agrees(growth, lines, first, last)
    assert_equal [lines.size, lines.sum { |line| line["memsize"] }],
                 [growth.new_count + growth.new_garbage_count, growth.new_bytes + growth.new_garbage_bytes]
    assert_equal objects(last).size - objects(first).size, growth.total_count
    assert_equal [last, first].map { |path| objects(path).values.sum { |line| line["memsize"] } }.reduce(:-),
                 growth.total_bytes
    assert_equal [growth.new_count, growth.new_bytes], sums(growth.classes)
    assert_equal growth.new_bytes, growth.paths.sum(&:accumulated_bytes)
    assert_equal growth.path_count, growth.paths.size
  end

  def sums(rows) = [rows.sum(&:new_count), rows.sum(&:new_bytes)]

  def row(growth, name) = growth.classes.find { |row| row.name == name }

  def test_traced_dumps
    with_dumps(:traced) do |dumps|
      assert_three_dumps_find_what_has_stayed(*dumps)
      assert_two_dumps_find_all_that_is_new(*dumps.first(2))
    end
  end

  def assert_three_dumps_find_what_has_stayed(first, second, third)
    growth = Memscope::HeapGraph.growth(first, second, third, top: 1000)
    lines = expected(first, second, third)
    orders = row(growth, "Order")

    assert_agrees growth, lines, first, third
    assert_equal [500, 700, 701], [orders.new_count, orders.count, orders.later_count]
    assert_equal ["Bus → Array → Order", 500], [growth.paths.first.to_s, growth.paths.first.count]
    assert_equal [first, second, third], growth.sources
    assert_equal growth, Memscope::HeapGraph::Growth.from_json(growth.to_json)
    assert_allocated_where_the_dump_says growth, lines
  end

  def assert_two_dumps_find_all_that_is_new(first, second)
    growth = Memscope::HeapGraph.growth(first, second, top: 1000)

    assert_agrees growth, expected(first, second), first, second
    assert_equal 800, row(growth, "Order").new_count
    assert_equal %w[names paths], growth.reasons.keys.map(&:to_s).sort
  end

  # Compares objects whose line in the dump states a place: those of the program, and of objspace itself.
  def assert_allocated_where_the_dump_says(growth, lines)
    placed = lines.select { |line| line["file"] }.group_by { |line| line.values_at("file", "line").join(":") }

    growth.sites.each do |site|
      assert_operator placed.fetch(site.name).size, :>=, site.count # garbage is left out
    end
    constructor = growth.sites.find { |site| site.count >= 2000 }

    assert_equal constructor, growth.sites.first
    assert_equal 2000, constructor.count
  end

  # Objects of which the first dump has no trace are new if the last dump has one.
  def test_traced_after_the_first_dump
    with_dumps(:traced_later) do |first, _, last|
      growth = Memscope::HeapGraph.growth(first, last, top: 1000)

      assert_agrees growth, expected(first, last), first, last
      assert_equal 700, row(growth, "Order").new_count
      assert_operator growth.sites.map(&:count).max, :>=, 2800
      refute_includes growth.reasons.keys, :sites
      assert_match(/a lower bound/, growth.reasons[:new_bytes])
    end
  end

  # What the last dump traces is newer than the second; all else is compared by address, so a reason says so.
  def test_traced_except_before_the_second_dump
    with_dumps(:traced_apart) do |first, second, last|
      growth = Memscope::HeapGraph.growth(first, second, last, top: 1000)

      assert_agrees growth, expected(first, second, last), first, last
      assert_equal [500, 701], [row(growth, "Order").new_count, row(growth, "Order").later_count]
      assert_match(/a lower bound/, growth.reasons[:new_bytes])
    end
  end

  # Neither Ruby's dumps without traces nor ours say when objects were allocated: they are told apart by address and
  # class.
  def assert_agrees_without_traces(growth, dumps)
    assert_agrees growth, expected(*dumps), dumps.first, dumps.last
    assert_equal 500, row(growth, "Order").new_count
    assert_match(/a lower bound, unless a compaction moved objects, .*: objects with the same address/,
                 growth.reasons[:new_bytes])
    assert_match(/trace_object_allocations_start/, growth.reasons[:sites])
    assert_empty growth.sites
  end

  def test_rubys_dumps_without_traces
    with_dumps(:plain) do |dumps|
      assert_agrees_without_traces Memscope::HeapGraph.growth(*dumps, top: 1000), dumps
    end
  end

  both_allocators "memscope's own dumps", in_full: [:jemalloc] do |preload|
    with_dumps(:memscope, preload: preload) do |dumps|
      growth = Memscope::HeapGraph.growth(*dumps, top: 1000)

      assert_agrees_without_traces growth, dumps
      assert_includes growth.paths.map(&:to_s), "Bus::HANDLERS → Array → Order"
    end
  end

  def test_a_dump_and_itself
    with_dumps(:plain) do |first, *|
      growth = Memscope::HeapGraph.growth(first, first)

      assert_equal [0, 0, 0, 0], [growth.new_count, growth.new_garbage_count, growth.total_count, growth.path_count]
      assert_empty growth.classes + growth.paths
    end
  end

  def test_another_object_in_the_same_place
    Dir.mktmpdir("memscope") do |directory|
      write = lambda do |name, *objects|
        File.write("#{directory}/#{name}", <<~JSON)
          {"type":"ROOT", "root":"vm", "references":["0x40"]}
          #{objects.map { |object| JSON.generate({ type: 'STRING', memsize: 40, **object }) }.join("\n")}
        JSON
        "#{directory}/#{name}"
      end
      first = write.call("1", { address: "0x40", generation: 7 }, { address: "0x80" }, { address: "0xc0" })
      last = write.call("2", { address: "0x40", generation: 9, references: ["0x80"] },
                        { address: "0x80", type: "ARRAY" }, { address: "0xc0" })
      growth = Memscope::HeapGraph.growth(first, last)

      assert_equal [2, 80, 0], [growth.new_count, growth.new_bytes, growth.total_count]
      assert_equal([["(vm) → T_STRING", 80]], growth.paths.map { |path| [path.to_s, path.accumulated_bytes] })
      assert_equal({ "T_STRING" => -1, "T_ARRAY" => 1 },
                   growth.classes.to_h { |grown| [grown.name, grown.count] })
    end
  end

  # Where an object is does not matter if a dump has younger ones: it was allocated before.
  def test_a_compaction_between_the_dumps
    Dir.mktmpdir("memscope") do |directory|
      write = lambda do |name, **generations|
        objects = generations.map { |address, number| { address: address, generation: number, memsize: 40 }.compact }
        File.write("#{directory}/#{name}", <<~JSON)
          {"type":"ROOT", "root":"vm", "references":#{JSON.generate(generations.keys)}}
          #{objects.map { |object| JSON.generate({ type: 'STRING', **object }) }.join("\n")}
        JSON
        "#{directory}/#{name}"
      end
      first = write.call("1", "0x40": 7, "0x80": 7, "0xc0": 8, "0x380": nil)
      second = write.call("2", "0x100": 7, "0x140": 7, "0xc0": 8, "0x200": 9, "0x240": 9, "0x280": 11, "0x380": nil)
      third = write.call("3", "0x40": 7, "0x80": 7, "0xc0": 8, "0x300": 9, "0x340": 9, "0x280": 11, "0x3c0": nil)

      [[first, second], [first, second, third]].each do |dumps|
        growth = Memscope::HeapGraph.growth(*dumps)

        assert_equal [3, 120, nil], [growth.new_count, growth.new_bytes, growth.reasons[:new_bytes]]
      end
      growth = Memscope::HeapGraph.growth(first, third)

      assert_equal 4, growth.new_count
      assert_match(/\A1 of these objects have no trace: if a compaction/, growth.reasons[:new_bytes])
    end
  end

  def test_what_cannot_be_compared
    with_dumps(:plain) do |first, *|
      with_dumps(:memscope) do |ours, *|
        assert_match(/different processes/, Memscope::HeapGraph.growth(first, ours).reasons[:new_count])
        assert_match(/different processes/, Memscope::HeapGraph.growth(first, ours, first).reasons[:new_count])
      end
      assert_equal "dump 2 could not be read: not in the documented form",
                   Memscope::HeapGraph.growth(first, __FILE__).reasons[:new_count]
      refute_predicate Memscope::HeapGraph.growth(first, __FILE__), :known?
      assert_raises(Errno::ENOENT) { Memscope::HeapGraph.growth(first, "#{first}.none") }
      assert_raises(ArgumentError) { Memscope::HeapGraph.growth(first, first, top: 0) }
    end
  end

  def test_another_number_of_dumps
    native = Memscope.const_get(:Native)
    File.open(__FILE__) do |file|
      [1, 4].each do |count|
        error = assert_raises(ArgumentError) { native.heap_growth([file.fileno] * count, 10) }

        assert_equal "Native.heap_growth: files: given #{count}, allowed: 2 to 3", error.message
      end
    end
    assert_raises(TypeError) { Memscope::HeapGraph.growth(__FILE__, nil) }
  end

  def test_a_refused_descriptor_leaves_nothing_open
    skip_under_sanitizer
    grown = child_json(<<~RUBY, requires: ["json"])
      native = Memscope.const_get(:Native)
      refused = -> { native.heap_growth([0, "x"], 10) rescue $!.class }
      pages = -> { File.read("/proc/self/statm").to_i }
      refused.call
      before = pages.call
      2000.times { refused.call }
      puts JSON.generate([refused.call, pages.call - before])
    RUBY

    assert_equal "TypeError", grown.first
    assert_operator grown.last, :<, 2000
  end

  # What the first dump lacks counts as new, which no other dump's state may hide.
  def test_each_dump_that_is_incomplete_is_named
    with_dumps(:plain) do |first, second, _third|
      whole = File.read(first)
      File.write(first, whole[0, whole.size - 20])
      File.write(second, whole.sub("\n", "\n{\"address\":\"0x8\", \"type\":\"STRING\", \"references\":[\"0x10\"]}\n"))
      reasons = Memscope::HeapGraph.growth(first, second).reasons

      assert_match(/\Adump 1: the dump is incomplete: .*, dump 2: [\d,]+ references lead to objects that are not/,
                   reasons[:new_count])
      refute_match(/lower bound/, reasons[:new_bytes].to_s)
    end
  end

  def test_a_missing_dump_leaves_no_file_open
    left = child_json(<<~RUBY, requires: %w[json memscope])
      GC.disable
      open_files = -> { Dir["/proc/self/fd/*"].count { |link| File.identical?(link, #{__FILE__.dump}) } }
      raised = (Memscope::HeapGraph.growth(#{__FILE__.dump}, "/nowhere") rescue $!.class.name)
      puts JSON.generate([raised, open_files.call])
    RUBY

    assert_equal ["Errno::ENOENT", 0], left
  end

  def test_dumps_in_the_wrong_order
    with_dumps(:plain) do |first, second, _third|
      File.utime(Time.now, Time.now - 60, second)

      assert_equal "the first of these files was written last",
                   Memscope::HeapGraph.growth(first, second).reasons[:sources]
    end
  end

  def test_the_command_line
    with_dumps(:traced) do |paths|
      said = memscope(0, *paths, "--top", "3")

      assert_match(/^ +new [KM]iB  new objects  allocated at$/, said)
      assert_match(/^ +\S+ +500 +\S+ +\+700  Order$/, memscope(0, *paths))
      assert_match(/Bus (?:→|->) Array (?:→|->) Order \(500 alike\)/, said)
      refute_match(/secret/, said + memscope(0, *paths, "--json"))
      assert_equal "heap_graph_growth", JSON.parse(memscope(0, *paths.first(2), "--json"))["kind"]
      assert_match(/a DUMP takes no --paths-to/, memscope(64, *paths, "--paths-to", "Order"))
      assert_match(/dumps of one process, all by ObjectSpace/, memscope(74, paths.first, __FILE__))
    end
  end

  private

  def memscope(status, *arguments)
    require "memscope/cli/cli"
    out = StringIO.new
    err = StringIO.new

    assert_equal status, Memscope::CLI.run(["heap", *arguments], out: out, err: err), err.string
    out.string + err.string
  end
end
