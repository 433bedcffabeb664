# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/value/quantity"

class QuantityTest < MemscopeTest
  MEBIBYTE = Memscope::Quantity::MEBIBYTE

  def test_a_range
    assert_equal "0.3 to 2.8 MiB", between(0.3, 2.8)
    assert_equal "up to 2.8 MiB", between(0, 2.8)
    assert_equal ["2.8 MiB", "0 B"], [between(2.8, 2.8), between(0, 0)]
  end

  def test_bounds_that_are_rounded_to_the_same_number_are_one
    assert_equal "44.6 MiB", between(44.58, 44.64)
    assert_equal "44.6 to 44.7 MiB", between(44.64, 44.66)
    assert_equal "16 KiB", between(8.0 / 1024, 16.0 / 1024)
    assert_equal "39 KiB to 98 KiB", between(39.0 / 1024, 98.0 / 1024)
  end

  def test_a_signed_number
    texts = [2.8, -2.8, 0, 0.01, -0.01].map do |number|
      Memscope::Quantity.signed_mebibytes((number * MEBIBYTE).to_i)
    end

    assert_equal %w[+2.8 -2.8 0.0 0.0 0.0], texts
  end

  def test_what_the_machine_gains_is_said_only_if_other_processes_share_some_of_it
    assert_nil gain(153.7..162.8, 153.7..162.8)
    assert_nil gain(153.7..162.8, 153.2..162.0)
    assert_nil gain(50, 49.5)
    assert_nil gain(nil, 2)
    assert_nil gain(2, nil)
  end

  def test_what_the_machine_gains_of_memory_that_is_partly_shared
    rest = "other processes also map the remaining pages."

    assert_equal "Of the returned memory, the machine gains 10.0 MiB: #{rest}", gain(50, 10)
    assert_equal "Of the returned memory, the machine gains 10.0 to 162.8 MiB: #{rest}", gain(153.7..162.8, 10..162.8)
    assert_equal "Of the returned memory, the machine gains up to 5.0 MiB: #{rest}", gain(0..20, 0..5)
    assert_equal "The machine gains nothing: other processes share this memory.", gain(50..60, 0)
  end

  def test_what_the_machine_loses
    cause = "the process needs its own copies of pages that it shared and has written to."

    assert_equal "The machine loses 90.3 MiB: #{cause}", gain(59.0, -90.3)
    assert_equal "The machine loses up to 60.0 MiB, or gains up to 12.0 MiB: #{cause}", gain(nil, -60..12)
    assert_nil gain(-20, -20.2)
  end

  def test_a_pause
    { 0.2 => "1 ms", 9.4 => "9 ms", 114.0 => "110 ms", 949.0 => "950 ms", 3_854.0 => "3.9 s", 16_651.0 => "16.7 s" }
      .each { |milliseconds, text| assert_equal text, Memscope::Quantity.pause(milliseconds) }
  end

  private

  def gain(*mebibytes)
    amounts = mebibytes.map do |amount|
      case amount
      when Range then ((amount.begin * MEBIBYTE).to_i..(amount.end * MEBIBYTE).to_i)
      when Numeric then (amount * MEBIBYTE).to_i
      end
    end
    Memscope::Quantity.gain(*amounts)
  end

  def between(*mebibytes)
    Memscope::Quantity.between(*mebibytes.map { |number| (number * MEBIBYTE).to_i })
  end
end
