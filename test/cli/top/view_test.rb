# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/cli/cli"
require "memscope/cli/top_command"

# What memscope top draws for given numbers.
class CLITopViewTest < MemscopeTest
  MIB = 1_048_576
  PATH = "malloc (glibc) / main heap / in use"

  def setup
    @view = Memscope::CLI::Top::View.new(unicode: true)
  end

  # @return [Array<String>] the rows after the last of these readings
  def rows(*readings, columns: 100)
    readings.each { |rows| @view.add(title: "t", rows: rows, long: :end) }
    @lines = @view.lines(columns, 24)
    @lines[3...-2]
  end

  # A row that keeps its size is flat next to one that leaks; alone, it is flat as well.
  def test_sparklines_share_one_scale
    leaking = [0, 10, 20, 30].map do |more|
      [[:leak, (100 + more) * MIB, "leak"], [:flat, (183 * MIB) + (more * 3000), "flat"]]
    end

    assert_equal [["130.0", "+30.0", "▁▃▅█", "leak"], ["183.1", "+0.1", "▁▁▁▁", "flat"]], rows(*leaking).map(&:split)
    assert_match(/since \d\d:\d\d:\d\d; █ is 30\.0 MiB more than ▁\z/, @lines[2])
    setup

    assert_equal [["183.1", "+0.1", "▁▁▁▁", "flat"]], rows(*leaking.map { |both| both.drop(1) }).map(&:split)
    assert_match(/; █ is 1\.0 MiB more than ▁\z/, @lines[2])
  end

  def test_what_came_later_is_new
    first = [[1, 10 * MIB, "one"]]

    assert_equal %w[9.0 new two], rows(first, [*first, [2, 5 * MIB, "two"]], [*first, [2, 9 * MIB, "two"]])
      .last.delete("▁▂▃▄▅▆▇█").split
  end

  # The end of a path tells rows apart.
  def test_names_on_a_narrow_terminal
    shown = [120, 60, 44, 30].map { |columns| rows([[:row, 5 * MIB, PATH]], columns: columns).first }

    assert_operator shown[0], :end_with?, "malloc (glibc) / main heap / in use"
    assert_match(%r{  ….* / in use\z}, shown[2])
    assert_operator shown[3], :end_with?, "in use"
    assert_equal([true] * 4, shown.zip([120, 60, 44, 30]).map { |line, columns| line.length <= columns })
  end
end
