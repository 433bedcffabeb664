# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require_relative "../../support/printed"
require "memscope/show/report"

class DumpPageTest < MemscopeTest
  include Printed

  def dump(**given)
    body = { path: "/tmp/heap.json", format: :heapsnapshot, objects: 41_000, references: 1, bytes: 3 << 20,
             redacted: true, reasons: {}, pause_ms: 2.5, cost: Bodies.cost(wall_us: 1_500_000, gvl_us: 3_000), **given }
    text(Memscope::Dump.capture(body, { memscope: "0.1.0", ruby: "3.1.2", pid: 4711, at: 0 }))
  end

  def test_what_was_written_and_what_opens_it
    said = dump

    assert_match(/\Amemscope 0\.1\.0 - .*pid 4711$/, said)
    assert_includes said,
                    "  41,000 objects, 1 reference, 3.0 MiB, without objects' contents\n  load it in the Memory panel"
    assert_includes said, "  written in 1500 ms (3.0 ms under the GVL), by a child whose fork took 2.5 ms\n"
    assert_includes dump(format: :perfetto), "ui.perfetto.dev, which uploads nothing"
  end

  # It does not say which process it is from.
  def test_a_converted_dump
    said = dump(pause_ms: nil)

    assert_equal "memscope 0.1.0", said.lines.first.chomp
    refute_match(/4711|GVL|fork/, said)
  end
end
