# frozen_string_literal: true

require_relative "../../test_helper"

# Which lines keep more and more objects: a pure decision over counts.
class ObjectGrowthDecisionTest < MemscopeTest
  GROWTH = Memscope::ObjectProfile::Growth

  # @param series [Hash{Object => Array<Integer>}] objects of each line; nil: the line has none
  def decide(error: 10, **series)
    counts = Array.new(series.values.first.size) do |index|
      series.transform_values { |objects| objects[index] && GROWTH::Count.new(objects[index], error) }.compact
    end
    GROWTH.decide(counts)
  end

  def test_a_line_that_grows_is_found_and_one_that_does_not_is_not
    assert_equal [:leak], decide(leak: (1..11).map { |epoch| 100 * epoch }, cache: [500] * 11)
    assert_empty decide(cache: [500] * 11, ring: [480, *([520, 480] * 5)], shrinking: 2000.step(1000, -100).to_a)
  end

  def test_the_one_that_grew_most_is_first
    assert_equal %i[fast slow],
                 decide(slow: (1..11).map { |epoch| 50 * epoch }, fast: (1..11).map { |epoch| 100 * epoch })
  end

  def test_ten_epochs_are_counted_twice
    assert_empty decide(leak: (1..10).map { |epoch| 100 * epoch })
    assert_equal [:leak], decide(leak: (1..11).map { |epoch| 100 * epoch })
  end

  # The first thirds' mean is 200, the last thirds' 1,000 (of 11 counts) and 900 (of 10): growth of 800 and 700.
  def test_growth_exceeds_three_errors_of_the_difference
    leak = (1..11).map { |epoch| 100 * epoch }

    assert_equal [:leak], decide(leak: leak, error: (700 / (3 * Math.sqrt(2))).floor)
    assert_empty decide(leak: leak, error: (700 / (3 * Math.sqrt(2))).ceil)
  end

  def test_one_high_count_is_not_growth
    assert_empty decide(peak: [*([100] * 10), 1000])
  end

  # A line without an estimate holds nothing yet; one that is gone holds nothing any more.
  def test_lines_that_appear_and_disappear
    assert_equal [:new], decide(new: [*([nil] * 5), *([500] * 6)], gone: [*(1..10).map { |epoch| 100 * epoch }, nil])
  end

  def test_nothing_is_decided_without_counts
    assert_empty GROWTH.decide([])
  end

  BODY = { windows: 3, allocations: 60_000, windows_share: 0.5, equal_windows: 2.5 }.freeze
  BODIES = [["/a.rb", "block in save", 4]].freeze

  # A line is counted once, whether it runs in a method or in a block; memscope's own frame, of a tag, is not counted.
  def test_the_parts_of_a_line_are_one_count
    tag = ["/gems/memscope/tags.rb", "Memscope.tag", 9]
    counts = GROWTH.count(BODY.merge(lines: [[BODIES, 6, 300, [[1, 20_000, 100], [2, 20_000, 200]]],
                                             [[tag, ["/a.rb", "save", 4]], 5, 250, [[2, 20_000, 250]]],
                                             [[["/b.rb", "load", 1]], 9, 450, [[1, 20_000, 450]]]]))

    assert_equal [["/a.rb", 4]], counts.keys
    assert_equal 550, counts.values.first.objects
    # Windows add 100 and 450, of 20,000 allocations each: by hand, with n = 2.5.
    rate = 550 / 60_000r
    clustered = ((2.5 / 1.5)**4) * ((100**2) + (450**2) - (2 * rate * 20_000 * 550) + (((rate * 60_000)**2) / 2.5))
    independent = (550.0**2) / 11 * (1 - (11 / 550r))

    assert_equal Math.sqrt([independent, (clustered + independent) / 2].max * 12 / 11).round, counts.values.first.error
  end
end
