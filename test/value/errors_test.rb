# frozen_string_literal: true

require_relative "../test_helper"

class ErrorsTest < MemscopeTest
  def test_an_invalid_argument_in_its_parts
    error = assert_raises(Memscope::Invalid) { Memscope.heap_graph(deadline: -1) }

    assert_kind_of ArgumentError, error
    assert_equal ["Memscope.heap_graph", "deadline", "-1", "a number of seconds from 0.1 to 3600"],
                 [error.call, error.argument, error.given, error.allowed]
    assert_equal "Memscope.heap_graph: deadline: given -1, allowed: a number of seconds from 0.1 to 3600", error.message
    assert_equal "--deadline: given -1, allowed: a number of seconds from 0.1 to 3600", error.as("--deadline")
  end

  def test_an_invalid_part_by_its_path
    error = assert_raises(Memscope::Invalid) { Memscope::Cost.from_h({ tier: "T1", wall_us: -1 }) }

    assert_equal ["Memscope::Cost.from_h", "wall_us", "-1"], [error.call, error.argument, error.given]
    error = assert_raises(Memscope::Invalid) { Memscope::Cost.from_h(nil) }

    assert_equal ["Memscope::Cost.from_h", nil, "nil"], [error.call, error.argument, error.given]
    assert_equal "given nil, allowed: a Hash as Memscope::Cost#to_h gives it", error.as
  end

  # The value may be huge, and must not be kept alive.
  def test_the_given_value_is_short_text
    error = assert_raises(Memscope::Invalid) { Memscope.snapshot(malloc: "x" * 1_000_000) }

    assert_operator error.given.size, :<=, 64
  end

  def test_what_is_unavailable_has_the_id_of_a_reason
    error = Memscope::Unavailable.new(:denied)

    assert_equal [:denied, "refused by the kernel"], [error.reason, error.message]
    assert_equal "a: not there", Memscope::Unavailable.new(:unread, "a", :not_found).message
  end
end
