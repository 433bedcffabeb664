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
