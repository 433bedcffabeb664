# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/printed_ledger"
require "memscope/show/report"
require "stringio"

class ReportTest < MemscopeTest
  include PrintedLedger

  def test_markdown_is_the_text_in_a_fence_that_nothing_in_it_ends
    assert_equal "````text\n#{text}````\n", Memscope::Report.render(ledger, markdown: true, width: 200, color: true)

    rows = [Bodies.row(:malloc, "a ````` row", 831 << 20)]

    assert_match(/\A``````text\nmemscope .*\n``````\n\z/m, Memscope::Report.render(ledger(rows: rows), markdown: true))
  end

  def test_prints_in_the_encoding_of_the_io
    [[Encoding::UTF_8, "├─"], [Encoding::US_ASCII, "|-"], [Encoding::ISO_8859_1, "|-"]].each do |encoding, branch|
      io = StringIO.new((+"").force_encoding(encoding))

      assert_nil Memscope::Report.print(ledger, io)
      assert_includes io.string.dup.force_encoding("UTF-8"), branch
    end
  end

  # An output with a write method, but no encoding.
  class Writer
    attr_reader :text

    def write(text)
      @text = text
    end
  end

  def test_prints_to_whatever_writes
    writer = Writer.new
    Memscope.report(writer)

    assert_includes writer.text, "= RSS of this reading, to the byte"
  end

  def test_refuses_what_does_not_write
    error = assert_raises(ArgumentError) { Memscope.report("report.txt") }
    assert_equal 'Memscope.report: io: given "report.txt", allowed: an IO or another object with #write', error.message
  end

  both_allocators "a real report fits and adds up" do |preload|
    [{}, { deep: true, objects: true }, { deep: true, shared: true, objects: true, strict: true }].each do |options|
      ran = ChildProcess.run("Memscope.report(**#{options})", requires: ["memscope"], preload: preload)

      assert_includes ran.out, "= RSS of this reading, to the byte"
      assert_operator ran.out.lines.map { |line| line.chomp.length }.max, :<=, 80
      next if ChildProcess::SANITIZER

      assert_equal options.key?(:objects), ran.out.include?("held through malloc"), ran
      assert_equal options.key?(:objects), ran.out.include?("allocated through malloc,"), ran
      assert_equal options.key?(:shared), ran.out.include?("shared"), ran
    end
  end
end
