# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/copying"

# A copy answers as the process itself would.
class CopyAnswersTest < MemscopeTest
  include Copying

  NATIVE = Memscope.const_get(:Native)
  Answers = Memscope::Copy::Answers

  def test_facts
    mine = NATIVE.facts
    facts = with_answers(&:facts)

    assert_equal mine.except(:cpu_seconds, :variables), facts.except(:cpu_seconds, :variables)
    assert_equal ENV.select { |name, _value| name.start_with?("RUBY_GC_", "DYNO") }, facts[:variables]
    assert_in_delta mine[:cpu_seconds], facts[:cpu_seconds], 0.5
  end

  def test_the_memory_of_compilers
    assert_equal NATIVE.jit_bytes, with_answers(&:jit_bytes)
  end

  # Each method of Native that the readings of a copy call.
  def test_every_method_that_readings_call
    readings = %w[process heap judge/lint.rb judge/doctor/evidence.rb]
    files = readings.flat_map { |path| Dir["lib/memscope/#{path}{,/**/*.rb}"] }.grep(/rb\z/)
    called = files.map { |path| File.read(path) }.join.scan(/\bnative\.(\w+\??)/).flatten.uniq

    assert_operator called.size, :>=, 20
    assert_empty(called.reject { |name| Answers.method_defined?(name) })
  end

  def test_its_version_and_its_directory
    answers = Answers.new(nil, {}, pid: 4711, ruby: "3.2.11", file: nil)

    assert_equal ["3.2.11", "4711", false], [answers.ruby, answers.process, answers.own?]
  end

  private

  def with_answers
    with_copy { |copy| yield copy.instance_variable_get(:@answers) }
  end
end
