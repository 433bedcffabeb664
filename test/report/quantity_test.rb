# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/report/quantity"

class QuantityTest < MemscopeTest
  MEBIBYTE = Memscope::Report::Quantity::MEBIBYTE

  def test_a_range
    assert_equal "0.3 to 2.8 MiB", between(0.3, 2.8)
    assert_equal "up to 2.8 MiB", between(0, 2.8)
    assert_equal ["2.8 MiB", "0 B"], [between(2.8, 2.8), between(0, 0)]
  end

  def test_bounds_that_are_rounded_to_the_same_number_are_one
    assert_equal "44.6 MiB", between(44.58, 44.64)
    assert_equal "44.6 to 44.7 MiB", between(44.64, 44.66)
    assert_equal "16 KiB", between(8.0 / 1024, 16.0 / 1024)
  end

  def test_a_signed_number
    texts = [2.8, -2.8, 0, 0.01, -0.01].map do |number|
      Memscope::Report::Quantity.signed_mebibytes((number * MEBIBYTE).to_i)
    end

    assert_equal %w[+2.8 -2.8 0.0 0.0 0.0], texts
  end

  private

  def between(*mebibytes)
    Memscope::Report::Quantity.between(*mebibytes.map { |number| (number * MEBIBYTE).to_i })
  end
end
