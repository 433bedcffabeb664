# frozen_string_literal: true

require_relative "../../test_helper"

class BlackBoxApproachTest < MemscopeTest
  Approach = Memscope::Loading.unit(:BlackBox)::Approach

  def test_evidence_is_taken_a_few_times_a_day
    approach = Approach.new

    refute_predicate approach, :began?
    taken = Array.new(Approach::MOST + 1) { |hour| approach.take_evidence(3600.0 * hour) }

    assert_predicate approach, :began?
    assert_nil taken.pop
    assert_empty taken - %i[census lines]
    refute_nil approach.take_evidence(2.0 * Approach::DAY)
  end
end
