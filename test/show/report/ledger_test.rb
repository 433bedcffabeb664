# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/printed_ledger"

# A ledger as text. Of two ledgers' difference, see test/value/diff_test.rb.
class LedgerPageTest < MemscopeTest
  include PrintedLedger

  def test_the_first_screen
    assert_equal <<~TEXT, text
      memscope 0.1.0 · ruby 3.1.2 · glibc 2.36 serves malloc (proved) · pid 4711

        The kernel says      831.1 MiB   resident
        Ruby says              1.4 MiB   in live slots
        The difference       829.8 MiB   and this is where it is:

            MiB   of RSS
          783.5   94.3 %  malloc (glibc)
          765.5            ├─ main heap
           25.5            │   ├─ in use        45,649 blocks
          739.8            │   ├─ free
            0.2            │   └─ thread caches
           16.5            ├─ 15 arenas         15 arenas
            1.5            └─ mmapped           2 blocks
           40.5    4.9 %  Ruby heap             2,596 pages
           39.1            ├─ free slots
            1.4            └─ live slots
            4.2    0.5 %  Ruby internals        transient heap 4.1 MiB
            2.9    0.3 %  files                 text 2.8 MiB
            2.9            └─ ruby
            0.0    0.0 %  unattributed
          831.1  100.0 %  = RSS of this reading, to the byte

        read in 24 ms (0.7 ms under the GVL) · kernel scan vs. statm: 0 B
        1 of 1 check passed
    TEXT
  end

  # Without deep, glibc's blocks are not told apart: the bound counts all of malloc, and must not call it in use.
  def test_what_may_be_garbage_is_in_use_only_if_that_is_known
    rows = ->(detail) { [Bodies.row(:malloc, "malloc", 100, detail: detail)] }
    known, unknown = [{ in_use_bytes: 20 << 20 }, {}].map do |detail|
      text(rows: rows.call(detail), garbage_max_bytes: 21 << 20).gsub(/\s+/, " ")
    end

    assert_includes known, "Up to 21.0 MiB of live slots and of malloc memory in use, resident or not, may be garbage."
    assert_includes unknown, "The amount of garbage in live slots and malloc memory is unknown. --gc (gc: true)"
  end

  def test_a_bound_that_prints_like_the_known_garbage_is_not_printed
    slots = Bodies.row(:live_slots, "live slots", 20, children: [Bodies.row(:garbage, "garbage", 20)])
    rows = [Bodies.row(:ruby_heap, "Ruby heap", 100, children: [slots])]
    close, far = [(20 << 20) + 1, 25 << 20].map do |most|
      text(rows: rows, garbage_max_bytes: most).gsub(/\s+/, " ")
    end

    assert_includes close, "20.0 MiB of live slots and of malloc memory in use, resident or not, is garbage. --gc"
    assert_includes far, "is garbage, and up to 25.0 MiB may be. --gc"
  end

  def test_a_wide_bound_on_garbage_is_not_printed
    wide = text(rows: [Bodies.row(:malloc, "malloc", 100)], garbage_max_bytes: 41 << 20).gsub(/\s+/, " ")

    refute_includes wide, "41.0"
    assert_includes wide, "The amount of garbage in live slots and malloc memory is unknown. --gc (gc: true) " \
                          "collects it first."
  end

  def test_what_a_compiler_holds_in_malloc
    detail = { in_use_bytes: 200 << 20, held_by_objects_bytes: 110 << 20, jit_metadata_bytes: 87 << 20,
               untracked_bytes: 3 << 20 }
    said = text(rows: [Bodies.row(:malloc, "malloc (glibc)", 210, detail: detail)]).gsub(/\s+/, " ")

    assert_includes said, "malloc (glibc) jit metadata 87.0 MiB"
    assert_includes said, "Ruby objects account for 110.0 MiB, Ruby's just-in-time compiler for at least 87.0 MiB. " \
                          "The other 3.0 MiB is untracked"
  end

  # Objects that report too much: a rest is never negative.
  def test_what_objects_report_beyond_malloc_has_no_rest
    detail = { in_use_bytes: 20 << 20, held_by_objects_bytes: 150 << 20 }
    heap = Bodies.row(:ruby_heap, "Ruby heap", 10, children: [Bodies.row(:live_slots, "live slots", 10)])
    said = text(rows: [Bodies.row(:malloc, "malloc (glibc)", 210, detail: detail), heap],
                held_by_objects_bytes: 150 << 20)

    refute_match(/-\d|untracked/, said)
    assert_includes said, "10.0 in live slots, 150.0 reported by objects\n"
  end

  # Blocks that were never written to count in full.
  def test_objects_that_hold_more_than_is_resident
    heap = Bodies.row(:ruby_heap, "Ruby heap", 1, children: [Bodies.row(:live_slots, "live slots", 1)])

    assert_match(/^  The difference +200\.0 MiB   is not resident; RSS by owner:$/,
                 text(rows: [Bodies.row(:malloc, "malloc", 100), heap], held_by_objects_bytes: 300 << 20))
  end

  def test_what_objects_hold_is_what_ruby_says
    given_out = { in_use_bytes: 200 * 1_048_576, held_by_objects_bytes: 150 * 1_048_576,
                  untracked_bytes: 50 * 1_048_576 }
    said = text(held_by_objects_bytes: 150 * 1_048_576,
                rows: [Bodies.row(:malloc, "malloc (glibc)", 210, detail: given_out),
                       Bodies.row(:ruby_heap, "Ruby heap", 10, children: [Bodies.row(:live_slots, "live slots", 10)])])

    assert_includes said, "Ruby says            160.0 MiB   10.0 in live slots, 150.0 held through malloc"
    assert_includes said, "The difference        60.0 MiB"
    assert_includes said, "Of 200.0 MiB allocated through malloc, resident or not, Ruby objects account\n"
  end

  def test_what_a_trim_returns_stands_with_the_row_it_comes_from
    free = Bodies.row(:free, "free", 512, detail: { blocks: 3, chunk_bytes: 7, trimmable_bytes: 500 * 1_048_576 })
    main = Bodies.row(:main_heap, "main heap", 512, children: [free])
    said = text(rows: [Bodies.row(:malloc, "malloc", 512, detail: { trimmable_bytes: 9_999_999 }, children: [main])])

    assert_match(/ free +500.0 MiB trimmable, 3 blocks$/, said)
    refute_includes said, "9.5 MiB"
    assert_operator said.lines.map { |line| line.chomp.length }.max, :<=, 80
  end

  def test_shared_memory_has_a_column_of_its_own
    said = text(rows: [Bodies.row(:malloc, "malloc", 3, shared_bytes: 2 * 1_048_576, private_bytes: 1_048_576,
                                                        children: [Bodies.row(:in_use, "in use", 3)]),
                       Bodies.row(:files, "files", 1, shared_bytes: 0, private_bytes: 1_048_576)])

    assert_includes said, "      MiB   of RSS     shared\n      3.0   75.0 %        2.0  malloc\n"
    assert_includes said, "\n      3.0                   –   └─ in use\n"
    assert_includes said, "\n      4.0  100.0 %        2.0  = RSS of this reading, to the byte\n"
  end

  def test_details
    detail = { path: "/usr/bin/ruby", blocks: 1, threads: 16, text_bytes: 1536, none_bytes: 0, ratio: 0.5, huge: true,
               thp: false, mappings: [{}, {}], nothing: [], unknown: nil, empty: "" }
    detail.each_slice(3).zip([["/usr/bin/ruby, 1 block, 16 threads"], ["text 2 KiB, ratio 0.5"], ["huge, 2 mappings"],
                              []]) do |part, (expected)|
      line = text(rows: [Bodies.row(:files, "files", 1, detail: part.to_h)]).lines.grep(/files/).first

      assert_equal expected.to_s, line.chomp[42..].to_s
    end
  end

  def test_rows_of_zero_are_left_out_with_those_below_them
    refute_match(/stacks|empty pages/, text)
    cancelled = [Bodies.row(:malloc, "malloc", 0, children: [Bodies.row(:in_use, "in use", 2),
                                                             Bodies.row(:not_resident, "not resident", -2)]),
                 Bodies.row(:files, "files", 1)]

    assert_match(/^ +0\.0 +0\.0 %  malloc\n +2\.0 +├─ in use\n +-2\.0 +└─ not resident$/, text(rows: cancelled))
  end

  def test_an_unverified_check_is_printed_with_its_difference
    unverified = text(rows: [Bodies.row(:malloc, "malloc (jemalloc)", 2, check: Bodies.check(2_097_152, 2_101_248)),
                             Bodies.row(:files, "files", 1, check: Bodies.check(1, 1))])

    assert_includes unverified, "malloc (jemalloc)     unverified\n"
    assert_includes unverified.gsub(/\s+/, " "),
                    "unverified: malloc (jemalloc) has 2,101,248 B, but mallinfo2 hblkhd has 2,097,152 B (+4,096 B)"
    assert_includes unverified, "1 of 2 checks passed"
  end

  def test_a_sum_that_is_not_rss_says_so
    assert_includes text(rows: [Bodies.row(:files, "files", 1)], rss_bytes: 1_048_576 + 4096),
                    "the sum; RSS of this reading is 4,096 B more"
  end

  def test_an_allocator_without_proof_says_so
    unproved = text(allocator: Bodies.allocator(name: :unknown, version: nil, proved: false, proof: "nobody knows it"))

    assert_includes unproved, "the allocator that serves malloc is unknown"
    assert_includes unproved, "malloc: nobody knows it"
  end

  def test_without_proc
    assert_equal <<~TEXT, text(rows: [], rss_bytes: nil, source: :none, reasons: { rss_bytes: "there is no /proc" })
      memscope 0.1.0 · ruby 3.1.2 · glibc 2.36 serves malloc (proved) · pid 4711

        The kernel says  unknown; see the reasons below

        unavailable or approximate:
          rss_bytes: there is no /proc

        read in 24 ms (0.7 ms under the GVL)
    TEXT
  end

  def test_without_live_slots_ruby_says_nothing
    assert_includes text(rows: [Bodies.row(:ruby_heap, "Ruby heap", 1)]), "\n  Ruby says        unknown; RSS by owner:"
  end

  def test_a_scan_beside_statm_says_by_how_much
    beside = ->(before, after) { text(statm_before_bytes: before, statm_after_bytes: after)[/vs\. statm: (.*)$/, 1] }
    rss = ledger.rss_bytes

    assert_equal "+4,096 B", beside.call(rss - 4096, rss - 4096)
    assert_equal "-4,096 B", beside.call(rss + 8192, rss + 4096)
    assert_equal "0 B", beside.call(rss - 4096, rss + 4096)
    assert_nil beside.call(nil, nil)
  end
end
