# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"

class PurgeResultTest < MemscopeTest
  def test_the_result_is_a_reading
    result = Memscope.purge(:gc)

    assert_equal ["purge", Process.pid, :T3], [result.kind, result.pid, result.cost.tier]
    assert_equal result, Memscope::Purge::Result.from_h(JSON.parse(result.to_json))
    assert_equal result.returned_bytes, result.before.rss_bytes - result.after.rss_bytes
    assert_equal result.returned_bytes, result.rows.values.sum
    assert_equal result.levers.first, result[:gc]
    assert_predicate result[:gc], :gvl?
    assert_operator result[:gc].wall_ms, :>, 0
    assert_match(/has no :trim; allowed: :gc/, assert_raises(KeyError) { result[:trim] }.message)
  end

  MEBIBYTE = Bodies::MEBIBYTE

  def lever(name, least, most = least, **given)
    { name: name, predicted_bytes: least * MEBIBYTE, predicted_max_bytes: most * MEBIBYTE, returned_bytes: nil,
      rows: {}, gvl: false, **given }
  end

  def dry(*levers, **given) = Bodies.purge(dry_run: true, levers: levers, returned_bytes: nil, rows: {}, **given)

  def mebibytes(range) = range && [range.begin, range.end].map { |bytes| bytes / MEBIBYTE }

  # decay returns some of the pages that purge returns; what is left out does not run.
  def test_predictions_that_add_up
    result = dry(lever(:gc, 1, 5), lever(:compact, 9), lever(:decay, 2), lever(:purge, 10),
                 left_out: { compact: "long" })

    assert_equal %i[gc purge], result.counted.map(&:name)
    assert_equal [11, 15], mebibytes(result.predicted)
  end

  def test_no_more_is_predicted_than_is_resident
    assert_equal [100, 100], mebibytes(dry(lever(:gc, 60, 90), lever(:purge, 70, 80)).predicted)
  end

  def test_what_the_machine_gains_is_unknown_if_one_lever_does_not_know
    known = { predicted_private_bytes: 3 * MEBIBYTE, predicted_private_max_bytes: 4 * MEBIBYTE }

    assert_equal [3, 4], mebibytes(dry(lever(:trim, 5, **known)).predicted_private)
    assert_nil dry(lever(:gc, 5), lever(:trim, 5, **known)).predicted_private
  end

  def test_the_reasons_of_levers_are_the_results
    result = dry(lever(:gc, 1, reason: "a range"), left_out: { gc: "it stops Ruby", compact: "too" },
                                                   reasons: { rows: "no" })

    assert_equal({ rows: "no", gc: "it stops Ruby. Name it to run it; a range", compact: "too. Name it to run it" },
                 result.all_reasons)
  end
end
