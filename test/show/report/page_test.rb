# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/printed_ledger"

# What all pages share: columns, widths, plain ASCII.
class ReportPageTest < MemscopeTest
  include PrintedLedger

  def test_plain_ascii_has_the_same_shape
    plain = text(unicode: false)

    assert_predicate plain, :ascii_only?
    assert_includes plain, "   765.5            |- main heap\n     25.5            |   |- in use        45,649 blocks\n"
    assert_equal text.lines.size, plain.lines.size
    assert_includes text(unicode: false, rows: [Bodies.row(:files, "dätei", 1)]), "d?tei"
  end

  def test_terabytes_stay_in_their_columns
    wide = text(rows: [Bodies.row(:malloc, "malloc", 3_000_000, detail: { blocks: 123_456_789, mapped_bytes: 2**42 },
                                                                children: [Bodies.row(:free, "free", 3_000_000)]),
                       Bodies.row(:unattributed, "unattributed", 0)])

    assert_includes wide, "  3,000,000.0  100.0 %  malloc"
    assert_equal [13], wide.scan(/^ +[\d,]+\.\d(?=  )/).map(&:length).uniq
    assert_operator wide.lines.map { |line| line.chomp.length }.max, :<=, 80
  end

  def test_a_row_larger_than_the_whole_keeps_the_columns
    wide = text(rows: [Bodies.row(:malloc, "malloc", 1, children: [Bodies.row(:in_use, "in use", 20_000),
                                                                   Bodies.row(:not_resident, "not there", -19_999)])])

    assert_equal [11], wide.scan(/^ +-?[\d,]+\.\d(?=  )/).map(&:length).uniq
  end

  def test_a_detail_that_its_column_is_too_narrow_for_stands_behind_the_label
    free = Bodies.row(:free, "free", 512, detail: { longest_part_that_nobody_uses_bytes: 500 * 1_048_576 })
    said = text(rows: [Bodies.row(:malloc, "malloc", 512, shared_bytes: 0, private_bytes: 512, children: [free])])

    assert_includes said, "–   └─ free  longest part that nobody uses 500.0 MiB\n"
  end

  def test_no_line_is_wider_than_the_screen
    reasons = { residency: "#{'word ' * 40}#{'x' * 200}", files: "first\nsecond" }
    wide = text(reasons: reasons,
                allocator: Bodies.allocator(name: :jemalloc, version: "5.3.0-#{'0' * 60}", proved: false),
                rows: [Bodies.row(:malloc, "l" * 90, 1, check: Bodies.check(0, 2**40)),
                       Bodies.row(:files, "files", 1, detail: { path: "p" * 90, a: 1, b: 2 }),
                       Bodies.row(:stacks, "s" * 50, 1, detail: { path: "p" * 90 })])

    assert_operator wide.lines.map { |line| line.chomp.length }.max, :<=, 80
    assert_includes wide, "x" * 70
    assert_includes wide, "files: first second"
  end

  def test_reasons_are_printed
    assert_includes text(reasons: { malloc: "jemalloc was built without statistics" }),
                    "\n  unavailable or approximate:\n    malloc: jemalloc was built without statistics\n"
  end

  def test_a_version_is_printed_without_its_build
    assert_includes text(allocator: Bodies.allocator(name: :jemalloc, version: "5.3.0-0-g54eaed1d8b56")),
                    "jemalloc 5.3.0 serves malloc (proved)"
  end

  # On the page of any reading, lines are wrapped if they can be, and otherwise cut.
  def test_readings_fit
    readings = [Memscope.ledger(deep: true), Memscope.doctor, Memscope.lint, Memscope.workers, Memscope.mappings]
    readings.product([46, 132]).each do |reading, width|
      text = Memscope::Report.render(reading, width: width)
      next_command = ("    #{reading.next_command}" if reading.is_a?(Memscope::Diagnosis))
      lines = text.lines(chomp: true).grep_v(/^ {11}>|^ {4}paste {2}/) - [next_command] # commands are pasted whole

      assert_empty(lines.select { |line| line.length > width })
      assert_equal text, Memscope::Report.render(reading, width: width, color: true).gsub(/\e\[[\d;]*m/, ""),
                   "nothing is said by colour alone"
    end
  end

  def test_a_table_that_is_too_wide_goes_on_below
    page = Memscope::Report::Page.new(unicode: true, width: 40)
    numbers = %w[a b c d e f].to_h { |name| [name * 8, "1,234,567"] }

    assert_equal [["pid", *%w[a b c].map { |name| name * 8 }], %w[1] + (["1,234,567"] * 3), [],
                  ["pid", *%w[d e f].map { |name| name * 8 }], %w[1] + (["1,234,567"] * 3)],
                 page.table(["pid", *numbers.keys], [["1", *numbers.values]]).to_a.map(&:split)
  end
end
