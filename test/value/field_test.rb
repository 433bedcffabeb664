# frozen_string_literal: true

require_relative "../test_helper"

class FieldTest < MemscopeTest
  Field = Memscope::Field

  def test_text_can_be_shown_anywhere
    assert_equal "a?b\n\tc", Field.text("a\eb\n\tc")
    assert_equal "a?b??c", Field.line("a\u202eb\n\tc")
    assert_equal "\uFFFDä", Field.line("\xFF\u00e4".b)
    assert_predicate Field.line(+"a"), :frozen?
  end

  def test_plain_values_are_frozen_to_the_bottom
    plain = Field.plain({ a: [+"x", { b: :c }] })

    assert_equal({ a: ["x", { b: "c" }] }, plain)
    [plain, plain[:a], plain[:a].last].each { |part| assert_predicate part, :frozen? }
  end

  def test_excerpts_are_short
    assert_equal 64, Field.excerpt([1] * 1000).size
    assert_equal "an Integer of 1001 bits", Field.excerpt(2**1000)
  end

  def test_a_choice
    assert_equal :b, Field.choice(:name, :b, %i[a b])
    error = assert_raises(Memscope::Invalid) { Field.choice(:name, 1.0, [1, nil], call: "X.y") }

    assert_equal "X.y: name: given 1.0, allowed: 1, nil", error.message
  end

  def test_seconds
    assert_in_delta 0.5, Field.seconds(:wait, 0.5, 0..1)
    [2, "1", nil, Complex(1, 1), Float::NAN].each do |given|
      assert_raises(Memscope::Invalid, given.inspect) { Field.seconds(:wait, given, 0..1) }
    end
  end
end

class InvalidTest < MemscopeTest
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
