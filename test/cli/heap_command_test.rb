# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "memscope/cli/cli"
require "memscope/cli/heap_since"
require "stringio"
require "tmpdir"

class CLIHeapTest < MemscopeTest
  include Listening

  LEAK = "class Leaked; def initialize = @text = +'x' * 300; end
          module Shop; KEPT = Array.new(9_000) { Leaked.new }; end"

  def test_from_it_grows_to_the_constant_that_holds_it
    process = listening(LEAK)
    said = memscope("--pid", process.pid.to_s, "--top", "3")

    assert_match(/^ +\d\.\d  Shop::KEPT (?:→|->) Array, holding 9,000 Leaked$/, said)
    assert_match(/^ +\d\.\d +\d\.\d +9,000  Leaked$/, memscope("--pid", process.pid.to_s))
    assert_match(/in a child; the child used [\d.]+ MiB/, said)
    assert_operator said.lines.map { |line| line.chomp.length }.max, :<=, 80
    assert_match(/paths to Leaked \(9,000 objects\): 1 kind$/,
                 memscope("--pid", process.pid.to_s, "--paths-to", "Leaked"))
  end

  def test_json_and_strings
    process = listening(LEAK)
    graph = Memscope::HeapGraph.from_json(memscope("--pid", process.pid.to_s, "--strings", "--json"))

    assert_equal [process.pid, :child, 9_000], [graph.pid, graph.walked_in, graph.paths.first.held_count]
    assert_operator graph.strings.duplicate_count, :>=, 8_999
  end

  def test_what_grew_comes_first
    process = listening(LEAK)
    file = File.join(@directory, "before.json")
    memscope("--pid", process.pid.to_s, "--json", "--output", file)
    process.tell("5_000.times { Shop::KEPT << Leaked.new }.nil?")

    assert_equal "false", process.gets
    said = memscope("--pid", process.pid.to_s, "--since", file, "--top", "8")

    assert_match(/reachable: \+1\d,\d{3} objects, \+\d\.\d MiB/, said)
    assert_match(/more, by what retains it\n +\d\.\d  Shop::KEPT (?:→|->) Array, holding 14,000 Leaked$/, said)
    assert_match(/^ +\+\d\.\d +\+\d\.\d +\+5,000  Leaked$/, said)
    changes = JSON.parse(memscope("--pid", process.pid.to_s, "--since", file, "--json"))

    assert_equal %w[diff heap_graph], changes.values_at("kind", "of")
  end

  # Nothing has grown where the earlier report lists only the largest.
  def test_what_an_earlier_report_does_not_list
    later = Memscope.heap_graph(top: 1000)
    cut = later.to_h.then { |hash| hash.merge(hash.slice(:retained, :paths).transform_values { |rows| rows.first(1) }) }
    page = Memscope::CLI::HeapSincePage.new(later, since: Memscope::HeapGraph.from_h(cut), limit: 10).to_s

    assert_match(/no path where memory has accumulated grew/, page)
    refute_match(/retained/, page)
  end

  def test_a_program_when_it_ends
    result = ChildProcess.run_command(*ChildProcess.ruby, "-rmemscope/cli/cli", "-e", "exit Memscope::CLI.run(ARGV)",
                                      "--", "heap", "--top", "2", "--paths-to", "Leaked", "--",
                                      *ChildProcess.ruby, "-e", LEAK)

    assert_predicate result, :success?, result
    assert_match(/Shop::KEPT .* Array .* Leaked \(9,000 alike\)$/, result.err)
  end

  def test_wrong_arguments
    assert_equal [64, "memscope heap: --top: given \"0\", allowed: a number from 1 to 1000"],
                 refused("heap", "--top", "0")
  end

  def refused(*arguments)
    out = StringIO.new
    err = StringIO.new
    status = Memscope::CLI.run(arguments, out: out, err: err)

    assert_empty out.string
    [status, err.string.lines.last.chomp]
  end

  def test_a_class_without_objects
    pid = listening(LEAK).pid

    assert_equal [64, "memscope heap: --paths-to Laeked (did you mean Leaked?): " \
                      "there is no object of a class of that name"],
                 refused("heap", "--pid", pid.to_s, "--paths-to", "Laeked")
    assert_equal "there is no object of a class of that name",
                 Memscope.heap_graph(paths_to: "Laeked").reasons[:target_count]
  end

  def test_files_that_are_no_dump_it_reads
    Dir.mktmpdir("memscope") do |directory|
      File.write("#{directory}/heap.heapsnapshot", '{"snapshot":{')
      reads = "; allowed: the lines of ObjectSpace.dump_all or of memscope dump --format objspace"
      { "heap.heapsnapshot" => "the dump could not be read: not in the documented form#{reads}; " \
                               "memscope writes heapsnapshot, but does not read it",
        "none" => "No such file or directory#{reads}" }.each do |name, why|
        assert_equal [74, "memscope heap: #{directory}/#{name}: #{why}"], refused("heap", "#{directory}/#{name}")
        status, said = refused("dump", "--from", "#{directory}/#{name}", "-o", "#{directory}/to.pftrace")

        assert_equal 74, status
        assert_match(/\Amemscope dump: #{Regexp.escape(directory)}.*#{Regexp.escape(reads)}/, said)
      end
      assert_equal ["heap.heapsnapshot"], Dir.children(directory)
    end
  end

  def test_files_to_write
    assert_equal [74, "memscope dump: --output #{File.expand_path(__FILE__)}: File exists; " \
                      "allowed: a file that does not exist yet, in a directory that can be written to"],
                 refused("dump", "-o", __FILE__, "--format", "objspace")
    assert_match(/memscope dump: --output x.weird: of no known format; allowed: --format, .*\.heapsnapshot/,
                 refused("dump", "-o", "x.weird").last)
  end

  def test_refuses_what_is_no_name_of_a_class_from_another_process
    client = Memscope::Client.new(listening("1").pid)
    error = assert_raises(ArgumentError) { client.call(:heap_graph, paths_to: {}) }

    assert_match(/paths_to/, error.message)
  end

  private

  def memscope(*arguments)
    out = StringIO.new
    err = StringIO.new

    assert_equal 0, Memscope::CLI.run(["heap", *arguments], out: out, err: err), err.string
    out.string
  end
end
