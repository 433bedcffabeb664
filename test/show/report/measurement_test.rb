# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require_relative "../../support/printed"
require "memscope/profile/measurement"
require "memscope/show/report"

class MeasurementReportTest < MemscopeTest
  include Printed

  def row(name, retained, allocated, **place)
    { name: name, allocated_objects: allocated, allocated_bytes: 40 * allocated, retained_objects: retained,
      retained_bytes: retained && (40 * retained), **place }
  end

  def ledger(mebibytes)
    Memscope::Ledger.capture(Bodies.ledger(rows: [Bodies.row(:malloc, "malloc (glibc)", mebibytes)]))
  end

  def measurement(**given)
    Memscope::Measurement.capture(
      { allocated_objects: 41_250, allocated_bytes: 3_300_000, retained_objects: 12, retained_bytes: 480,
        classes: [row("String", 12, 41_000), row("Order\n", 0, 250)],
        lines: [row("/srv/app/releases/20261126/app/models/order.rb:12", 12, 41_250)],
        malloc_allocated_bytes: 900_000, malloc_retained_bytes: -64, rows: ledger(12) - ledger(10),
        peak_bytes: 50 << 20, reasons: {}, cost: Bodies.cost, **given }
    )
  end

  def test_the_totals
    said = text(measurement)

    assert_match(/^  allocated  retained$/, said)
    assert_match(/^     41,250        12  objects$/, said)
    assert_match(/^  3,300,000       480  bytes$/, said)
    assert_match(/^    900,000       -64  malloc bytes$/, said)
    assert_match(/^  RSS was at most 50.0 MiB.$/, said)
    assert_match(/^ +\+2.0  malloc \(glibc\)$/, said)
    assert_match(/read in 24 ms/, said)
  end

  def test_classes_and_lines
    said = text(measurement)

    assert_match(/^  retained B  objects  allocated B  objects  class$/, said)
    assert_match(/^         480       12    1,640,000   41,000  String$/, said)
    assert_match(/^           0        0       10,000      250  Order\?$/, said)
    assert_match(%r{  \.\.\.[\w/]*/app/models/order.rb:12$}, said)
  end

  def test_further_rows_are_summed_up
    said = text(measurement(classes: Array.new(5) { |number| row("Class#{number}", 2, 10) }), limit: 2)

    assert_match(/^         240        6        1,200       30  3 more$/, said)
  end

  def test_what_is_unknown_has_its_reason_once
    unknown = { classes: nil, lines: nil, allocated_bytes: nil, retained_objects: nil, retained_bytes: nil }
    said = text(measurement(**unknown, peak_bytes: nil,
                                       reasons: { **unknown.transform_values { "it crashes" }, peak_bytes: :denied }))

    assert_match(/^ +41,250 +-  objects$/, said)
    assert_match(/^ +- +-  bytes$/, said)
    refute_match(/RSS was|  class$/, said)
    assert_equal 1, said.scan(/it\s+crashes/).size
    assert_match(/peak_bytes: refused by the kernel/, said)
  end

  def test_a_measurement_that_another_process_has
    nothing = Memscope::Measurement.own_fields.to_h { |field| [field.name, nil] }
    said = text(measurement(**nothing, reasons: nothing.transform_values { :measured_in_parent }))

    assert_match(/: the block began in the process that this one\s+was forked from$/, said)
    refute_match(/objects$/, said)
  end
end
