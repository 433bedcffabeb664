# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require_relative "../../support/printed"
require "memscope/heap/census"
require "memscope/show/report"

class CensusReportTest < MemscopeTest
  include Printed

  MEBIBYTE = 1_048_576

  def row(name, mebibytes, count)
    { name: name, count: count, slot_bytes: MEBIBYTE, memsize_bytes: mebibytes * MEBIBYTE, old_count: count / 2 }
  end

  def census(*rows, **given)
    Memscope::Census.capture({ total_count: 1_234_567, total_slot_bytes: 3 * MEBIBYTE,
                               total_memsize_bytes: 31 * MEBIBYTE, total_old_count: 1_000, classes: rows,
                               types: [row("T_STRING", 3, 9)], imemos: [], slot_sizes: [], ages: [], collected: false,
                               gc_count: 1, reasons: {}, cost: Bodies.cost, **given })
  end

  def test_rows_and_the_sum_of_the_others
    said = text(census(row("Order", 20, 1_000_000), row("Café\nLine" * 30, 9, 2), row("A", 1, 3), row("B", 1, 4)),
                limit: 2)

    assert_match(/^  1,234,567 objects: 3.0 MiB in slots, 31.0 MiB in all$/, said)
    assert_match(/^  1,000 are old; garbage included/, said)
    assert_match(/^   MiB  in slots    objects      old  class$/, said)
    assert_match(/^  20.0       1.0  1,000,000  500,000  Order$/, said)
    assert_match(/^   9.0       1.0          2        1  Caf\?\?LineCaf/, said)
    assert_match(/^   2.0       2.0          7        3  2 others$/, said)
  end

  def test_a_census_of_private_pages_fits_the_page
    said = text(census(private: true))

    assert_match(/^  1,234,567 objects on pages that no other process shares: 3.0 MiB in slots,$/, said)
    assert_operator said.lines.map { |line| line.chomp.length }.max, :<=, 80
  end

  def test_another_grouping
    assert_match(/  type\n.*  T_STRING \(Ruby's own Strings\)$/, text(census, by: :type))
  end

  def test_growth
    said = text(census(row("Order", 20, 500), row("Old", 1, 1)) - census(row("Order", 5, 100), row("Old", 3, 9)))

    assert_match(/^   \+MiB  \+in slots  \+objects  \+old  objects  class$/, said)
    assert_match(/^  \+15.0        0.0      \+400  \+200      500  Order$/, said)
    assert_match(/^   -2.0        0.0        -8    -4        1  Old$/, said)
    refute_match(/read in/, said)
    assert_match(/The earlier and the later census counted garbage too/, said)
  end

  def test_growth_of_memscopes_own_classes_is_one_row_at_the_end
    said = text(census(row("Memscope::A", 9, 5), row("Memscope::B", 8, 2), row("Order", 1, 1)) - census, limit: 1)

    assert_match(/class\n.* Order\n +\+17\.0 .* \+7 .*  memscope's own classes$/, said)
    refute_match(/Memscope::/, said)
  end

  def test_classes_of_less_than_a_twentieth_are_summed_up
    tiny = row("Tiny", 0, 7).merge(memsize_bytes: 900)
    said = text(census(row("Order", 20, 3), tiny, { **tiny, name: "Smaller" }, row("Memscope::Field", 30, 2)))

    assert_match(/  Order\n.*  14 .*  2 others\n +30\.0 .*  memscope's own classes$/, said)
    refute_match(/Tiny|^ +0\.0/, said)
    assert_match(/^  KiB  in slots .*\n  0\.9 .*  Tiny$/, text(census(tiny)))
  end

  # A context of V8 holds megabytes of which Ruby knows nothing.
  def test_objects_that_report_no_size_by_the_count_that_came
    context = row("MiniRacer::Context", 0, 40).merge(memsize_bytes: 1_600, unsized_count: 40)
    later = census(row("Order", 20, 500), context, { **context, name: "Image", count: 12, unsized_count: 12 })
    said = text(later - census(row("Order", 5, 100), { **context, count: 5, unsized_count: 5 }))

    assert_match(/objects  class of C code that reports no size\n +\+35 +40  MiniRacer::Context\n +\+12 +12  Image\n/,
                 said)
    assert_match(/memscope heap --paths-to CLASS$/, said)
    refute_match(/no size/, text(later - later))
  end

  def test_an_unknown_census_says_why
    said = text(census(total_count: nil, reasons: { total_count: :census_beside_ractors }))

    assert_match(/^  Other Ractors are alive: objects cannot be walked\.$/, said)
    refute_match(/MiB/, said)
  end
end
