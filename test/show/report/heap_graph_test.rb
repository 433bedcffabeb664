# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require_relative "../../support/printed"
require_relative "../../support/leaking_shop"
require "memscope/heap/heap_graph"
require "memscope/show/report"
require "memscope/show/report/heap_graph"

class HeapGraphReportTest < MemscopeTest
  include Printed

  MEBIBYTE = 1_048_576

  def path(*names, **given)
    steps = names.map { |name| { name: name, times: 1, edge: :ivar, by: "@variable" } }
    { count: 1, retained_bytes: 9 * MEBIBYTE, steps: steps, steps_left_out: 0, **given }
  end

  def graph(**given)
    row = { name: "Order", count: 1_234_567, slot_bytes: 40, bytes: 5 * MEBIBYTE, retained_bytes: 7 * MEBIBYTE }
    Memscope::HeapGraph.capture(
      { retained: [row], garbage: [row.except(:retained_bytes)], roots: [], reachable_count: 1_300_000,
        reachable_bytes: 31 * MEBIBYTE, garbage_count: 4, garbage_bytes: 900, path_count: 2, target_count: 3,
        paths: [path("Bus", "Hash", accumulated_bytes: 8 * MEBIBYTE, held_class: "Order", held_count: 1_204)],
        dominators: [{ name: "Hash", bytes: 40, retained_bytes: 9 * MEBIBYTE, dominated_count: 3,
                       path: path("Bus", "Hash") }],
        reasons: {}, cost: Bodies.cost, **given }
    )
  end

  def test_where_memory_has_accumulated
    said = text(graph)

    assert_includes said, "reachable: 1,300,000 objects, 31.0 MiB; garbage: 4 objects, 900 B"
    assert_includes said, "  8.0  Bus @variable -> Hash, holding 1,204 Order"
    assert_match(/retained MiB  own MiB    objects  class\n +7\.0      5\.0  1,234,567  Order$/, said)
  end

  # No row of a list of the largest is 0.0; memscope's rows are one, the last; what is alike is one row.
  def test_rows_that_say_nothing
    sizes = [["Bus", 8], ["Bus", 4], ["Tram", 0.01], ["Memscope::HeapGraph", 9]]
    rows = sizes.map do |name, size|
      { name: name, bytes: 1, retained_bytes: (size * MEBIBYTE).to_i, dominated_count: 1, path: path(name, "Hash") }
    end
    classes = sizes.drop(1).map do |name, size|
      { name: name, count: 1, slot_bytes: 1, bytes: 1, retained_bytes: (size * MEBIBYTE).to_i }
    end
    said = text(graph(dominators: rows, retained: classes))

    assert_includes said, "MiB  retained by one object\n  12.0  Bus @variable -> Hash (2 alike)\n        " \
                          "1 row of less than 0.05 MiB\n        1 row of memscope itself\n"
    assert_match(/class\n +4\.0     <0\.1        1  Bus\n  Objects retain/, said)
    refute_match(/Tram|Memscope::|^ +0\.0/, said)
  end

  def test_a_small_heap_is_in_kibibytes
    said = text(graph(paths: [path("Bus", "Hash", accumulated_bytes: 3 * 1024)], dominators: []))

    assert_match(/^  KiB  where memory has accumulated\n  3\.0  Bus/, said)
  end

  def test_words_of_ruby_are_explained_where_they_stand
    steps = [["end_proc"], ["imemo_iseq"]].map { |name,| { name: name, times: 1, edge: :internal } }
    blocks = { count: 1, retained_bytes: 9, accumulated_bytes: 9 * MEBIBYTE, steps: steps, steps_left_out: 0,
               held_class: "imemo_ment", held_count: 7 }
    roots = { **blocks, steps: [{ name: "machine_context", times: 1, edge: :internal }], held_class: nil }
    entries = { name: "imemo_ment", count: 9, slot_bytes: 40, bytes: 5 * MEBIBYTE, retained_bytes: 7 * MEBIBYTE }
    said = text(graph(paths: [blocks, roots], retained: [entries]))

    assert_includes said, "9.0  (at_exit) -> imemo_iseq, holding 7 imemo_ment (method entries)"
    assert_includes said, "(machine_context): the stack of the thread that reads"
    assert_match(/7\.0 +5\.0 +9  imemo_ment \(method entries\)$/, said)
  end

  def test_paths_that_were_asked_for
    long = path("Bus", *Array.new(30, "Class::With::A::Long::Name"), count: 3, steps_left_out: 5)
    said = text(graph(paths_to: "Order", paths: [long]))

    assert_includes said, "paths to Order (3 objects): 2 kinds, the first 1 of them"
    assert_match(/\.\.\. 5 more/, said)
    assert_match(/\(3\s+alike\)/, said)
  end

  def test_without_a_path_or_an_answer
    assert_includes text(graph(paths_to: "Order", paths: [], target_count: 0, unreachable_target_count: 7)),
                    "no path leads to Order: 7 instances are garbage"
    assert_includes text(graph(reachable_count: nil, reasons: { reachable_count: [:child_without_room, 900, 8] })),
                    "  A child may need 900 MiB, but only 8 MiB are free"
  end

  def test_reasons_are_sentences
    said = text(graph(reasons: { reachable_bytes: "a lower bound that leaves out objects", names: :names_from_code }))

    assert_match(/^  Bytes are a lower bound that leaves out objects\.$/, said)
    assert_match(/Objects retain the memory that would be freed without them/, said)
    refute_match(/reachable_bytes|names:/, said)
  end

  def test_strings
    strings = { count: 9, bytes: 900, duplicate_count: 4, saved_bytes: 2 * MEBIBYTE,
                duplicates: [{ name: "String", length: 300, count: 5, saved_bytes: 2 * MEBIBYTE }] }

    assert_match(/2\.0 +5  String of 300 B\n  4 of 9 Strings are duplicates of others, which take 2\.0 MiB/,
                 text(graph(strings: strings)))
  end
end

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
    assert_match(/growth by retainer\n +\d\.\d  Shop::KEPT (?:→|->) Array, holding 14,000 Leaked$/, said)
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
