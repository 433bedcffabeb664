# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/leaking_shop"
require "memscope/show/report"
require "memscope/show/report/heap_since"

class HeapSincePageTest < MemscopeTest
  include LeakingShop

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
    whole = later.to_h
    listed = whole[:paths].max_by(whole[:paths].size / 2) { |path| path[:accumulated_bytes].fdiv(path[:count]) }
    cut = whole.merge(retained: whole[:retained].first(1), paths: listed, path_count: listed.size)
    page = Memscope::Report::HeapSincePage.new(later, since: Memscope::HeapGraph.from_h(cut), limit: 10).to_s

    assert_match(/no path where memory has accumulated grew/, page)
    refute_match(/retained/, page)
  end

  # Paths to a class do not tell how much has accumulated.
  def test_paths_to_a_class
    pid = listening(LEAK).pid.to_s
    file = File.join(@directory, "before.json")
    memscope("--pid", pid, "--paths-to", "Leaked", "--json", "--output", file)

    assert_equal [64, "memscope heap: --since and --paths-to exclude each other"],
                 refused("heap", "--pid", pid, "--since", file, "--paths-to", "Leaked")
    assert_equal [64, "memscope heap: --since: given a report of --paths-to, allowed: one without it"],
                 refused("heap", "--pid", pid, "--since", file)
  end
end
