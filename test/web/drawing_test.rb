# frozen_string_literal: true

require_relative "../support/web_case"

class WebDrawingTest < WebCase
  Branch = Struct.new(:owner, :bytes, :held_bytes, :mark)

  def drawing = Memscope::Web::Drawing

  # [class, x, width] of each rectangle, in percent.
  def rectangles(svg)
    found = svg.scan(/<rect class="([^"]+)" x="([\d.]+)%" width="([\d.]+)%"/)
    found.map { |name, left, width| [name, left.to_f, width.to_f] }
  end

  def test_segments_are_side_by_side_and_what_is_unused_is_at_their_end
    svg = drawing.bar([Branch.new(:malloc, 75, 15, 1), Branch.new(:files, 25, 0, 2)], label: "75 & 25")

    assert_equal [["fill segment row-malloc", 0.0, 75.0], ["held", 60.0, 15.0], ["fill segment row-files", 75.0, 25.0]],
                 rectangles(svg)
    assert_includes svg, 'aria-label="75 &amp; 25"'
    assert_equal %w[1 2], svg.scan(%r{>(\d)</text>}).flatten
  end

  def test_a_number_is_left_out_where_it_would_not_fit
    svg = drawing.bar([Branch.new(:malloc, 97, 0, 1), Branch.new(:files, 3, 0, 2)], label: "")

    assert_equal %w[1], svg.scan(%r{>(\d)</text>}).flatten
  end

  def test_nothing_at_all_is_no_division_by_zero
    assert_empty rectangles(drawing.bar([Branch.new(:malloc, 0, 0, 1)], label: ""))
  end

  def test_a_meter
    assert_equal [["track", 0.0, 100.0], ["fill row-jit", 0.0, 60.0], ["held", 40.0, 20.0]],
                 rectangles(drawing.meter(0.4, 0.2, id: :jit))
    assert_in_delta(100.0, rectangles(drawing.meter(1.7)).last.last, 0.001, "never more than the whole")
  end
end
