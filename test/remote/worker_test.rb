# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/remote/workers"

class WorkerTest < MemscopeTest
  def worker(**fields)
    Memscope::Worker.capture({ index: 0, pid: 7, role: :worker, samples: 1, reasons: {}, **fields })
  end

  def test_the_rss_of_its_ledger_is_the_sum_of_its_rows
    assert_equal 12, worker(rows: { malloc: 7, files: 5, stacks: 0 }).ledger_rss_bytes
    assert_nil worker.ledger_rss_bytes
  end

  def test_a_copy_has_other_values_for_some_fields_alone
    before = worker(rss_bytes: 5, reasons: { pss_bytes: "hidden" })
    later = before.with(rss_bytes: 6)

    assert_equal [5, 6, 7], [before.rss_bytes, later.rss_bytes, later.pid]
    assert_equal before.to_h.except(:rss_bytes), later.to_h.except(:rss_bytes)
    assert_predicate later, :frozen?
    assert_raises(ArgumentError) { Memscope::Worker.from_h({ **before.to_h, role: "boss" }) }
  end

  def test_they_are_subtracted_by_pid
    diff = Memscope.workers - Memscope.workers

    assert_equal [Process.pid.to_s], diff[:workers].rows.map(&:name)
  end

  def test_every_column_of_the_table_is_a_field
    read = worker(**Memscope::Worker::COLUMNS.keys.to_h { |name| [name, 9] })

    assert_equal [9], Memscope::Worker::COLUMNS.keys.map { |name| read.public_send(name) }.uniq
    assert_equal read, Memscope::Worker.from_h(JSON.parse(read.to_json))
  end
end
