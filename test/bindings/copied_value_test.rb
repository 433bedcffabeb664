# frozen_string_literal: true

require_relative "../support/copies"
require_relative "../test_helper"

# The JSON of values in a copy, which Native.copied gives of this process. Decoded, it is the same value.
class CopiedValueTest < MemscopeTest
  NATIVE = Memscope.const_get(:Native)
  TOO_DEEP = 101

  # Each method that an encoder might call ends the test.
  class Hostile < BasicObject
    def method_missing(name, *) = ::Kernel.raise("called #{name}")
    def respond_to_missing?(*) = ::Kernel.raise("called respond_to?")
  end

  HOSTILE_METHODS = %i[to_s to_str inspect to_json to_a to_ary to_h to_hash each each_pair size length [] fetch keys
                       hash eql? == encoding bytes valid_encoding? message full_message].freeze

  def self.hostile(parent)
    Class.new(parent) { HOSTILE_METHODS.each { |name| define_method(name) { |*| raise name } } }
  end

  HostileString = hostile(String)
  HostileArray = hostile(Array)
  HostileHash = hostile(Hash)
  HostileError = hostile(StandardError)

  def test_each_type
    { nil => "null", true => "true", false => "false", 0 => "0", -17 => "-17", 1.5 => "1.5", 1.0 => "1.0",
      :name => '":name"', "text" => %("'text"), [] => "[]", {} => "{}", [1, [nil]] => "[1,[null]]",
      { a: 1, "b" => :c, 3 => "d" } => %({":a":1,"'b":":c","#3":"'d"}) }.each do |value, json|
      assert_equal json, copied(value)
    end
  end

  def test_other_objects_are_null_and_their_pairs_are_left_out
    assert_equal "[null,null,null,null]", copied([Object.new, 1..2, Rational(1, 3), Hostile.new])
    assert_equal '{":a":null}', copied({ nil => 1, 1.5 => 2, [] => 3, a: Struct.new(:b).new(1), Object => 4 })
  end

  def test_numbers
    [2**62, -(2**62), 2**63, 2**64, -(2**64) - 1, 10**500, -(10**500), 0.1, -0.0, 1e300, 5e-324, 123_456_789.125, 1e15,
     1e16, 1e17, Float::MAX, Float::MIN, Float::EPSILON].each { |number| assert_the_same number }

    [Float::NAN, Float::INFINITY, -Float::INFINITY].each { |number| assert_equal "null", copied(number) }
  end

  def test_strings
    ["", "'", ":", "#1", "=", "\"\\/\b\f\n\r\t\0\e\x7f", (0..127).map(&:chr).join, "é€😀\u2028\ufeff", "x" * 100_000,
     "a".encode("UTF-16LE")].each { |text| assert_the_same text }

    assert_equal %("'\\u0000\\u0022\\u005c\\u000aé"), copied("\0\"\\\né")
  end

  # Overlong, surrogates, beyond U+10FFFF, cut short, and all bytes: each byte is a code point.
  def test_strings_that_are_not_utf8
    ["\xff", "a\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82",
     (0..255).to_a.pack("C*")].each do |text|
      assert_equal text.b, decoded(copied(text)), text.inspect
      assert_equal text.b, decoded(copied({ text => 1 })).keys.first
    end

    assert_equal '"=a\\u00ff\\u0022"', copied("a\xff\"")
    assert_equal '"=\\u00ff"', copied("\xff".b.to_sym)
  end

  def test_symbols_and_keys
    ["", "a b", "é", "'", "\n"].each { |name| assert_the_same({ name.to_sym => [name.to_sym] }) }
    assert_the_same({ 1 => 2, -(2**70) => 3, "1" => 4, "1": 5 })
  end

  def test_a_value_nested_too_deep_is_null
    nested = Array.new(TOO_DEEP).inject(1) { |inner, _| [inner] }

    assert_equal "#{'[' * 100}null#{']' * 100}", copied(nested)
    assert_the_same nested.first
  end

  def test_a_value_that_contains_itself_ends
    array = []
    hash = { array: array }
    array << hash

    assert_equal "#{'[{":array":' * 50}null#{'}]' * 50}", copied(array)
    assert_equal "#{'{":array":[' * 50}null#{']}' * 50}", copied(hash)
  end

  # 2 ** 100 elements by 100 arrays.
  def test_a_value_that_is_too_large_raises
    part = ["x" * (1 << 20)] * 100
    error = assert_raises(RuntimeError) { copied((1..90).inject(part) { |inner, _| [inner, inner] }) }

    assert_equal "the value is too large", error.message
    assert_equal "1", NATIVE.copied("1")
  end

  def test_no_method_of_the_value_is_called
    hash = HostileHash.new.replace({ a: 1 })

    assert_equal %(["'text",[1],{":a":1}]), copied([HostileString.new("text"), HostileArray.new([1]), hash])
  end

  def test_the_class_and_the_message_of_an_exception
    { "raise ArgumentError, 'why'" => "ArgumentError: why", "raise 'é'" => "RuntimeError: é",
      "unknown_name" => "NameError", "exit" => "SystemExit: exit",
      "throw :unknown" => "UncaughtThrowError: uncaught throw %p",
      "raise CopiedValueTest::HostileError, 'why'" => "CopiedValueTest::HostileError: why",
      "raise Class.new(StandardError), 'why'" => /\A#<Class:0x\h+>: why\z/,
      "1 +" => /\ASyntaxError: / }.each do |expression, text|
      error = assert_raises(RuntimeError, expression) { NATIVE.copied(expression) }

      assert_operator text, :===, error.message
    end

    assert_nil $! # rubocop:disable Style/SpecialGlobalVars
  end

  def test_an_expression_may_evaluate_another
    assert_equal %("'[1]"), NATIVE.copied("Memscope.const_get(:Native).copied('[1]')")
  end

  def test_any_value_is_the_same_once_decoded
    random = Random.new(32)

    500.times { assert_the_same any_value(random, 4) }
  end

  private

  def copied(value)
    $copied_value = value # rubocop:disable Style/GlobalVars -- for the expression
    NATIVE.copied("$copied_value")
  end

  def assert_the_same(value)
    again = decoded(copied(value))

    assert_equal Marshal.dump(in_bytes(value)), Marshal.dump(in_bytes(again)), value.inspect
  end

  # Its Strings without their encodings, so that Marshal compares types and bytes.
  def in_bytes(value)
    case value
    when String then value.b
    when Array then value.map { |item| in_bytes(item) }
    when Hash then value.to_h { |key, item| [in_bytes(key), in_bytes(item)] }
    else value
    end
  end

  def decoded(json) = Copies.decoded(json)

  def any_value(random, depth)
    case random.rand(depth.positive? ? 10 : 8)
    when 0 then [nil, true, false].sample(random: random)
    when 1 then random.rand(2**random.rand(1..200)) * [1, -1].sample(random: random)
    when 2 then random.bytes(8).unpack1("D").then { |number| number.finite? ? number : 0.5 }
    when 3 then random.bytes(random.rand(20)) # rarely UTF-8
    when 4 then any_text(random).to_sym
    when 5..7 then any_text(random)
    when 8 then Array.new(random.rand(6)) { any_value(random, depth - 1) }
    else any_hash(random, depth - 1)
    end
  end

  def any_text(random)
    ranges = [0...0x80, 0...0xd800, 0xe000..0x10ffff]
    Array.new(random.rand(12)) { random.rand(ranges.sample(random: random)) }.pack("U*")
  end

  def any_hash(random, depth)
    Array.new(random.rand(6)) do
      [[any_text(random), any_text(random).to_sym, random.rand(2**70)].sample(random: random), any_value(random, depth)]
    end.to_h
  end
end
