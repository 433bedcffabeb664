# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require "memscope/show/report"

class PurgePageTest < MemscopeTest
  def test_the_table
    text = Memscope::Report.render(Bodies.purge)

    assert_match(/^  predicted MiB  returned  machine gains   ms  lever$/, text)
    assert_match(/^   41\.0 to 42\.0      40\.0              –  1\.5  trim$/, text)
    assert_match(/^  RSS 100\.0 MiB before, 60\.0 after: 40\.0 returned$/, text)
    assert_match(/^  -40\.0  malloc$/, text)
    assert_match(/^  trim: it is a range$/, text)
    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 80
    assert_predicate Memscope::Report.render(Bodies.purge, unicode: false), :ascii_only?
  end

  def test_the_table_of_a_dry_run
    dry = Bodies.purge(dry_run: true, returned_bytes: nil, after: 100, rows: {})
    text = Memscope.purge(dry_run: true).to_s

    assert_match(/RSS [\d,.]+ MiB; (?:nothing was changed|a garbage collection in progress was)/, text)
    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 80
    assert_predicate dry, :dry_run?
  end
end
