# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/linted"

class LintTest < MemscopeTest
  include Linted

  # Whoever starts a process can name a variable by any bytes.
  def test_a_variable_whose_name_is_not_utf8
    names = child_json(<<~RUBY, requires: %w[json memscope/judge/lint], env: { "MY_MALLOC_\xFF" => "\xFF" })
      puts JSON.generate([Memscope::Lint::Inputs.read.variables.keys, Memscope.lint.kind])
    RUBY

    assert_equal [["MY_MALLOC_\uFFFD"], "lint"], names
  end

  def test_it_is_frozen_enumerable_and_survives_json
    reading = jemalloc("dirty_decay:5", given: { dirty_decay: ["MALLOC_CONF", "5", NOT_TAKEN] }, memory_limit_bytes: 1)

    assert Ractor.shareable?(reading) if defined?(Ractor) && reading.frozen?

    assert_predicate reading, :frozen?
    assert_equal reading.settings, reading.to_a
    assert_equal reading.settings.size, reading.each.size
    assert_equal reading, Memscope::Lint.from_h(JSON.parse(reading.to_json))
    assert_equal "lint", JSON.parse(reading.to_json).fetch("kind")
  end

  def test_warnings_come_first
    reading = jemalloc(variables: { MALLOC_ARENA_MAX: "1", MALLOC_TRACE: "x" }, options: { junk: "true" })

    assert_equal %i[warning info info], reading.problems.map(&:severity)
  end
end
