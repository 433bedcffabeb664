# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/show/report/sparkline"

class SparklineTest < MemscopeTest
  def of(values, scale:, unicode: true) = Memscope::Report::Sparkline.of(values, scale: scale, unicode: unicode)

  def test_heights_are_above_the_least_number
    assert_equal "▁▄█", of([100, 150, 200], scale: 100)
    assert_equal "▁▂▃", of([100, 120, 140], scale: 140), "a full bar is far above all of them"
    assert_equal "_=@", of([-1, -0.5, 0], scale: 1, unicode: false)
  end

  def test_what_is_unknown_is_blank_and_what_is_flat_is_low
    assert_equal "▁ █", of([0, nil, 7], scale: 7)
    assert_equal "   ", of([nil] * 3, scale: 7)
    assert_equal "▁▁", of([5, 5], scale: 1)
  end
end
