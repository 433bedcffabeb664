# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"

class LedgerTest < MemscopeTest
  MEBIBYTE = Bodies::MEBIBYTE

  def ledger(**given)
    Memscope::Ledger.capture(Bodies.ledger(**given))
  end

  def parsed(ledger)
    JSON.parse(ledger.to_json)
  end

  def refusal(hash)
    assert_raises(ArgumentError) { Memscope::Ledger.from_h(hash) }.message
  end

  def test_rows_come_largest_first
    assert_equal %i[malloc ruby_heap ruby_internal files stacks unattributed], ledger.rows.map(&:id)
  end

  def test_children_stay_in_their_order
    assert_equal %i[in_use free thread_caches], ledger.dig(:malloc, :main_heap).children.map(&:id)
  end

  def test_rows_are_found_by_id
    assert_equal "malloc (glibc)", ledger[:malloc].label
    assert_equal (25 * MEBIBYTE) + (MEBIBYTE / 2), ledger.dig(:malloc, :main_heap, :in_use).bytes
    assert_equal ledger[:malloc][:mmapped], ledger[:malloc][:mmapped]
    assert_equal ledger[:malloc], ledger["malloc"]
  end

  def test_a_row_that_is_not_there_is_refused_with_those_that_are
    top = assert_raises(KeyError) { ledger[:mallocs] }
    assert_equal "Memscope::Ledger has no :mallocs; allowed: :malloc, :ruby_heap, :ruby_internal, :files, " \
                 ":stacks, :unattributed",
                 top.message
    assert_equal :mallocs, top.key
    below = assert_raises(KeyError) { ledger.dig(:malloc, :tcache) }
    assert_equal "Memscope::Ledger::Row has no :tcache; allowed: :main_heap, :arenas, :mmapped", below.message
    leaf = assert_raises(KeyError) { ledger[:stacks][:main] }
    assert_equal "Memscope::Ledger::Row has no :main; allowed: none", leaf.message
  end

  def test_leaves
    ids = %i[in_use free thread_caches arenas mmapped free_slots live_slots empty_pages ruby_internal ruby stacks
             unattributed]

    assert_equal ids, ledger.each_leaf.map(&:id)
    assert_equal ledger.rss_bytes, ledger.each_leaf.sum(&:bytes)
    yielded = []
    ledger.each_leaf { |row| yielded << row.id }

    assert_equal ids, yielded
    assert_predicate ledger[:stacks], :leaf?
    refute_predicate ledger[:malloc], :leaf?
  end

  def test_paths
    paths = ledger.each_path.map { |path, row, above| [path, row.id, above.map(&:id)] }

    assert_equal [[:malloc, :malloc, []], [:"malloc/main_heap", :main_heap, %i[malloc]],
                  [:"malloc/main_heap/in_use", :in_use, %i[malloc main_heap]]], paths.first(3)
    assert_equal 16, paths.size
    one = ledger

    assert_same(one, one.each_path { |path, _row, _above| path })
  end

  def test_leaves_by_path
    assert_equal ledger.rss_bytes, ledger.leaf_bytes.values.sum
    assert_equal ledger.each_leaf.count, ledger.leaf_bytes.size
    assert_equal 739.75 * MEBIBYTE, ledger.leaf_bytes[:"malloc/main_heap/free"]
  end

  def test_bytes_of_ruby
    assert_equal 1.375 * MEBIBYTE, ledger.ruby_bytes
    assert_equal 11.375 * MEBIBYTE, ledger(held_by_objects_bytes: 10 * MEBIBYTE).ruby_bytes
    assert_nil ledger(rows: [Bodies.row(:malloc, "malloc", 1)]).ruby_bytes
  end

  def test_rows_that_reports_show
    hidden = ledger.each_path.map { |_path, row| row }.reject(&:visible?)

    assert_equal %i[empty_pages stacks], hidden.map(&:id)
    children = [Bodies.row(:more, "more", 1), Bodies.row(:less, "less", -1)]

    assert_predicate Memscope::Ledger::Row.capture(Bodies.row(:top, "top", 0, children: children)), :visible?
  end

  def test_rows_that_their_checks_contradict
    assert_equal 0, ledger.unverified_rows
    rows = [Bodies.row(:malloc, "malloc", 1, check: Bodies.check(1, 2),
                                             children: [Bodies.row(:low, "low", 1, check: Bodies.check(1, 2))])]

    assert_equal 2, ledger(rows: rows).unverified_rows
  end

  def test_unattributed
    assert_equal 0, ledger.unattributed_bytes
    assert_equal MEBIBYTE, ledger(rows: [Bodies.row(:unattributed, "unattributed", 1)]).unattributed_bytes
    assert_equal 0, ledger(rows: []).unattributed_bytes
  end

  def test_without_proc
    nothing = ledger(rows: [], rss_bytes: nil, source: :none, statm_before_bytes: nil, statm_after_bytes: nil,
                     reasons: { rss_bytes: "no /proc" })

    assert_nil nothing.rss_bytes
    assert_nil nothing.unattributed_bytes
    assert_equal nothing, Memscope::Ledger.from_h(parsed(nothing))
  end

  def test_checks
    row = ledger(rows: [Bodies.row(:malloc, "malloc", 2, check: Bodies.check(4096, 8192))])[:malloc]

    assert_equal ["mallinfo2 hblkhd", 4096, 8192, 4096],
                 [row.check.source, row.check.expected_bytes, row.check.actual_bytes, row.check.difference_bytes]
    refute_predicate row.check, :verified?
    assert_nil ledger[:files].check
  end

  def test_sharing_is_nil_unless_asked_for
    assert_nil ledger[:malloc].shared_bytes
    refute_includes parsed(ledger)["rows"].first, "shared_bytes"
    shared = ledger(rows: [Bodies.row(:files, "files", 2, shared_bytes: MEBIBYTE, private_bytes: MEBIBYTE)])

    assert_equal MEBIBYTE, shared[:files].shared_bytes
    assert_equal shared, Memscope::Ledger.from_h(parsed(shared))
  end

  def test_the_allocator_stands_in_it_without_an_envelope
    hash = parsed(ledger)

    assert_equal "glibc", hash.dig("allocator", "name")
    assert_empty hash["allocator"].keys & %w[schema kind memscope ruby pid at process]
    assert_equal [ledger.kind, 1], hash.values_at("kind", "schema")
    assert_equal %w[allocator rss_bytes], hash.keys[7, 2]
  end

  def test_the_allocator_is_of_the_same_moment
    reading = ledger

    assert_equal [reading.pid, reading.at], [reading.allocator.pid, reading.allocator.at]
    assert_equal reading.allocator, Memscope::Ledger.from_h(parsed(reading)).allocator
  end

  def test_comes_back_from_json
    mappings = [{ start: 4096, end: 8192, resident_bytes: 4096, permissions: "rw-p", name: "" }]
    setting = { name: "narenas", value: 8, source: "default", given: nil, ignored: nil }
    reading = ledger(rows: [Bodies.row(:malloc, "malloc", 2, children: [Bodies.row(:in_use, "in use", 3),
                                                                        Bodies.row(:not_resident, "not resident", -1)]),
                            Bodies.row(:unattributed, "unattributed", 1, detail: { mappings: mappings })],
                     allocator: Bodies.allocator(settings: [setting]), reasons: { files: "coarse" })

    assert_equal reading, Memscope::Ledger.from_h(parsed(reading))
    assert_equal reading, Memscope::Ledger.from_h(reading.to_h)
    assert_equal(-MEBIBYTE, Memscope::Ledger.from_h(parsed(reading)).dig(:malloc, :not_resident).bytes)
    assert_equal mappings, Memscope::Ledger.from_h(parsed(reading))[:unattributed].detail[:mappings]
  end

  def test_from_h_refuses_what_is_malformed
    hash = parsed(ledger)

    assert_match(/from_h: source: given "guess", allowed: pagemap_scan, pagemap, smaps, none/,
                 refusal(hash.merge("source" => "guess")))
    assert_match(/from_h: rows: given nil, allowed: an Array, each item a Hash as Memscope::Ledger::Row/,
                 refusal(hash.merge("rows" => nil)))
    assert_match(/from_h: rows\[0\].children\[0\].bytes: given nil, allowed: an Integer, in bytes/,
                 refusal(hash.merge("rows" => [row("children" => [row("bytes" => nil)])])))
    assert_match(/from_h: rows\[0\].check.verified: given 1, allowed: true or false/,
                 refusal(hash.merge("rows" => [row("check" => Bodies.check(1, 1).merge(verified: 1))])))
    assert_match(/from_h: allocator: given \[\], allowed: a Hash as Memscope::Allocator/,
                 refusal(hash.merge("allocator" => [])))
    assert_match(/from_h: allocator.name: given "mymalloc", allowed: jemalloc/,
                 refusal(hash.merge("allocator" => hash["allocator"].merge("name" => "mymalloc"))))
  end

  def row(given)
    { "id" => "malloc", "label" => "malloc", "bytes" => 1, "detail" => {}, "children" => [] }.merge(given)
  end

  def test_a_real_ledger
    reading = Memscope.ledger

    assert_equal reading.rss_bytes, reading.rows.sum(&:bytes)
    assert_equal reading, Memscope::Ledger.from_h(JSON.parse(reading.to_json))
    assert_equal reading.rows.map(&:bytes).sort.reverse, reading.rows.map(&:bytes)
    assert_includes %i[pagemap_scan pagemap smaps], reading.source
  end

  # On Ruby 3.4 and newer, a ledger finishes a GC in progress. Here, a thread that allocates finishes it first.
  def test_a_reading_in_the_background_awaits_the_end_of_a_collection
    at_once, waited = child_json(<<~RUBY, requires: ["json"])
      begin_sweep = lambda do
        300_000.times { "x" * 60 }
        GC.start(immediate_sweep: false) until GC.latest_gc_info(:state) == :sweeping
      end
      said = ->(ledger) { ledger.reasons[:ruby_heap].to_s }
      begin_sweep.call
      at_once = said[Memscope.ledger]
      begin_sweep.call
      Thread.new { (1_000.times { "y" * 50 }; sleep 0.001) until GC.latest_gc_info(:state) == :none }
      puts JSON.generate([at_once, said[Memscope::Ledger.read_between_collections]])
    RUBY

    assert_match RUBY_VERSION < "3.4" ? /\A\z/ : /finished a garbage collection/, at_once
    assert_empty waited
  end

  both_allocators "all that can be asked for survives json" do |preload|
    same, held, rss, shared = child_json(<<~RUBY, preload: preload, requires: ["json"])
      ledger = Memscope.ledger(deep: true, shared: true, objects: true)
      p [Memscope::Ledger.from_h(JSON.parse(ledger.to_json)) == ledger, ledger.held_by_objects_bytes,
         ledger.rss_bytes, ledger.rows.sum { |row| row.shared_bytes + row.private_bytes }]
    RUBY

    assert same
    assert_operator held, :positive?
    assert_equal rss, shared
  end
end
