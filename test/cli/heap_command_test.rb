# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/leaking_shop"
require "memscope/cli/cli"
require "tmpdir"

class CLIHeapTest < MemscopeTest
  include LeakingShop

  def test_from_it_grows_to_the_constant_that_holds_it
    process = listening(LEAK)
    said = memscope("--pid", process.pid.to_s, "--top", "3")

    assert_match(/^ +\d\.\d  Shop::KEPT (?:→|->) Array, holding 9,000 Leaked$/, said)
    assert_match(/^ +\d\.\d +\d\.\d +9,000  Leaked$/, memscope("--pid", process.pid.to_s))
    assert_match(/in a child, which used [\d.]+ MiB/, said)
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

  def test_a_class_without_objects
    pid = listening(LEAK).pid

    assert_equal [64, "memscope heap: --paths-to Laeked (did you mean Leaked?): " \
                      "there is no object of a class of that name"],
                 refused("heap", "--pid", pid.to_s, "--paths-to", "Laeked")
    assert_equal "there is no object of a class of that name",
                 Memscope.heap_graph(paths_to: "Laeked").reasons[:target_count]
  end

  def test_refuses_what_is_no_name_of_a_class_from_another_process
    client = Memscope::Client.new(listening("1").pid)
    error = assert_raises(ArgumentError) { client.call(:heap_graph, paths_to: {}) }

    assert_match(/paths_to/, error.message)
  end
end
