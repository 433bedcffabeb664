# frozen_string_literal: true

require "test_helper"
require_relative "../support/copying"

# A copy that answers with anything: the reader makes a reading of it that can be shown, or fails with one sentence.
# ROUNDS=100000 for the long form.
class ForgedAnswersTest < MemscopeTest
  include Copying

  ROUNDS = Integer(ENV.fetch("ROUNDS", "300"))
  CALLS = { allocator: {}, snapshot: {}, ledger: {}, arenas: {}, size_classes: {}, mappings: {}, ruby_heap: {},
            census: {}, heap_graph: { top: 2 } }.freeze
  TOKENS = ["null", "true", "-1", "1e400", "1e-400", "18446744073709551616", '""', '"\'"', '":a"', '"=\u00ff"', '"#9"',
            "{}", "[]", '"\'\u001b[31m\u202e\n"', '":\u009b2J"', "\xFF", "\0", ",", "[", "}", "[" * 150,
            '{":reasons":{}}'].freeze
  KINDS = [0, 2, 3, 4, 5, 99].freeze

  def setup
    skip_under_sanitizer
    super
    @random = Random.new(32)
    @plain = {}
  end

  CALLS.each do |name, options|
    define_method("test_#{name}") do
      calls = ROUNDS / CALLS.size
      calls = assert_harmless(name, options, calls) while calls.positive?
    end
  end

  private

  # @return [Integer] how many calls are left, since no more can be read after some answers
  def assert_harmless(name, options, calls)
    with_copy(answers: method(:forged)) do |copy|
      10.times do
        return 0 unless (calls -= 1).positive?

        outcome = answered(copy, name, options) or break

        refute_match(/[[:cntrl:]\u202e&&[^\n]]/, outcome)
      end
    end
    calls
  end

  # @return [String, nil] what a user would see; nil if there was no answer
  def answered(copy, name, options)
    copy.call(name, **options).to_s
  rescue Memscope::Client::Failed => e
    refute_includes e.message, "\n"
    e.message.include?("has ended") ? nil : e.message
  end

  def forged(expression)
    plain = @plain[expression] ||= Memscope.const_get(:Native).copied(expression).b
    bytes = (1 + @random.rand(3)).times.reduce(plain.dup) { |text, _| mutated(text) }
    return FakeTracer.message(:value, bytes) unless @random.rand(20).zero?

    [KINDS.sample(random: @random), 0, @random.rand(4).zero? ? 1 << 63 : bytes.size].pack("LLQ") + bytes
  end

  def mutated(bytes)
    at = @random.rand(bytes.size + 1)
    case @random.rand(6)
    when 0 then bytes[0, at]
    when 1 then bytes[0, at] + TOKENS.sample(random: @random).b + bytes[at..]
    when 2 then bytes.tap { bytes.setbyte(at, @random.rand(256)) if at < bytes.size }
    when 3 then bytes[0, at] + (bytes[(at + @random.rand(40))..] || "".b)
    else replaced(bytes, at)
    end
  end

  # Another token in place of one that is there.
  def replaced(bytes, from)
    token = bytes.match(/"[^"]*"|-?\d[\d.]*|null|true|false/n, [from, bytes.size].min) or return bytes

    token.pre_match + TOKENS.sample(random: @random).b + token.post_match
  end
end
