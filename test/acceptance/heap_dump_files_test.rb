# frozen_string_literal: true

require_relative "../test_helper"
require "json"
require "memscope/cli/cli"
require "stringio"
require "tmpdir"
require "zlib"

# Dumps as people have them: piped, cut, written with since:, traced where a method has another alphabet.
class HeapDumpFilesTest < MemscopeTest
  HeapGraph = Memscope::HeapGraph

  ROOT = { type: "ROOT", root: "vm", references: ["0x100"] }.freeze
  # An Array that holds 100 Strings, and one String of garbage; all were traced.
  OBJECTS = [{ address: "0x40", type: "CLASS", name: "Array", memsize: 100 },
             { address: "0x80", type: "CLASS", name: "String", memsize: 100 },
             { address: "0x100", type: "ARRAY", class: "0x40", memsize: 840,
               references: ["0x80", *(1..100).map { |number| "0x#{(0x1000 + (number * 40)).to_s(16)}" }] },
             *(1..101).map do |number|
               { address: "0x#{(0x1000 + (number * 40)).to_s(16)}", type: "STRING", class: "0x80", file: "a.rb",
                 line: 4, method: "put", generation: 9, memsize: 106, flags: { old: true } }
             end].freeze

  # Spaced as by ObjectSpace.
  def lines(*objects) = objects.map { |object| "#{JSON.generate(object).gsub(',"', ', "')}\n" }.join

  def whole = lines(ROOT, *OBJECTS)

  # Yields the path of a file with this content.
  def with_file(content, name = "heap.json")
    Dir.mktmpdir("memscope") do |directory|
      path = "#{directory}/#{name}"
      File.binwrite(path, content)
      yield path
    end
  end

  def graph_of(content) = with_file(content) { |path| HeapGraph.read(path) }

  def memscope(*arguments, from: nil)
    out = StringIO.new
    err = StringIO.new
    stdin = $stdin.dup
    $stdin.reopen(from) if from
    status = Memscope::CLI.run(["heap", *arguments], out: out, err: err)
    [status, out.string, err.string]
  ensure
    $stdin.reopen(stdin)
    stdin.close
  end

  def counts(graph) = [graph.reachable_count, graph.garbage_count, graph.sites&.first&.to_h]

  SITE = { name: "a.rb:4", count: 101, bytes: 10_706 }.freeze

  def test_a_single_traced_dump_has_the_lines_that_allocated
    graph = graph_of(whole)

    assert_equal [103, 1, SITE], counts(graph)
    assert_match(/^ +KiB +objects  allocated at\n +10\.5 +101  a\.rb:4$/, graph.to_s)
    assert_nil graph_of(lines(ROOT, *OBJECTS.first(3))).sites
    assert_equal graph.sites, HeapGraph.from_json(graph.to_json).sites
  end

  # As Ruby 3.1 writes the name of a method that is not ASCII: other memory, with quotes and a newline, after each byte.
  BROKEN = "\\u00ff\0 and\\u00ff\0, \"me\\u00ff\0106, \\u00ff\0k\"}}\n{\"ad\\u00ff\0\"0x7f\\u00ff\0c10\","

  def broken(text = whole) = text.gsub('"method":"put"') { %("method":"#{BROKEN}") }

  def test_a_broken_name_of_a_method_costs_no_line
    graph = graph_of(broken)

    assert_equal [103, 1, SITE], counts(graph)
    assert_equal counts(graph), counts(graph_of("#{broken}\n"))
    refute_match(/could not be understood/, graph.reasons.values.join)
  end

  # The file is read in pieces, which end anywhere.
  def test_a_broken_name_at_the_end_of_a_piece
    (0..40).each do |step|
      filler = "#{JSON.generate({ type: 'SHAPE', text: '_' * ((128 << 10) - 2_000 - (step * 7)) })}\n"

      assert_equal [103, 1, SITE], counts(graph_of(filler + broken)), step
    end
  end

  def test_a_broken_name_without_an_end
    cut = broken[0, broken.rindex("\\u00ff")]

    assert_match(/\Athe dump is incomplete/, graph_of(cut).reasons[:garbage_count])
    assert_equal 103, graph_of(cut).reachable_count
  end

  def test_a_byte_order_mark_loses_nothing
    assert_equal [103, 1, SITE], counts(graph_of("\xEF\xBB\xBF".b + whole.b))
  end

  # ObjectSpace.dump_all(since:) writes neither roots nor older objects.
  def test_without_roots_nothing_is_garbage
    graph = graph_of(lines(*OBJECTS.drop(3)))
    said = graph.to_s.gsub(/\s+/, " ")

    assert_equal [101, nil, SITE], counts(graph)
    assert_match(/\Athe dump has no roots .*retainers and garbage are unknown/, graph.reasons[:garbage_count])
    assert_match(/The dump has no roots.* in the dump: 101 objects, .*; garbage: unknown .*T_STRING \(unknown class\)/,
                 said)
    assert_empty graph.paths + graph.dominators + graph.garbage + graph.roots
  end

  def test_a_cut_dump_is_said_first_and_its_garbage_is_not_judged
    cut = graph_of(whole[0, whole.size - 20])
    at_a_line = graph_of(whole.lines.first(50).join)

    assert_equal [nil, []], [cut.garbage_count, cut.garbage]
    assert_match(/\n\n  The dump is incomplete: its last line has no end\.\n\n  reachable/, cut.to_s)
    assert_nil at_a_line.garbage_count
    assert_match(/\n\n  [\d,]+ references lead to objects that are not in the dump/, at_a_line.to_s)
  end

  # A live process changes while it is dumped.
  def test_a_few_missing_objects_are_usual
    arrays = Array.new(20) do |number|
      { address: "0x#{(0x9000 + (number * 40)).to_s(16)}", type: "ARRAY", references: ["0x40"] * 60 }
    end

    assert_equal 22, graph_of(whole.sub('"0x1028"', '"0xdead"') + lines(*arrays)).garbage_count
  end

  def test_a_pair_with_a_cut_dump_is_refused_for_that
    classes = (1..80).map do |number|
      { address: "0x#{(0x9000 + (number * 64)).to_s(16)}", type: "CLASS", name: "C#{number}" }
    end
    with_file(lines(ROOT, *classes, *OBJECTS)) do |first|
      with_file(lines(ROOT, *OBJECTS)[0, 300]) do |second|
        growth = HeapGraph.growth(first, second)

        refute_predicate growth, :known?
        assert_match(/\Adump 2: the dump is incomplete/, growth.reasons[:new_count])
      end
    end
  end

  def test_a_compressed_dump_is_refused_and_read_from_a_pipe
    with_file(Zlib.gzip(whole), "heap.json.gz") do |path|
      refute_predicate HeapGraph.read(path), :known?
      IO.popen(["zcat", path]) { |pipe| assert_match(/reachable: 103 objects/, memscope("-", from: pipe)[1]) }
    end
  end

  def test_standard_input
    with_file(whole) do |path|
      File.open(path) do |file|
        assert_match(/reachable: 103 objects/, memscope("-", from: file)[1])
      end
    end
  end

  # However late the first byte comes.
  def test_fifos
    Dir.mktmpdir("memscope") do |directory|
      File.mkfifo("#{directory}/fifo")
      writer = Thread.new { sleep(0.1) && File.write("#{directory}/fifo", whole) }

      assert_equal [103, 1, SITE], counts(HeapGraph.read("#{directory}/fifo"))
      writer.join
    end
  end
end
