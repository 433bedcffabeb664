# frozen_string_literal: true

require "json"
require "memscope/judge/lint"
require_relative "lint_inputs"

# Tests of lint's output for inputs made by hand.
module Linted
  NOT_TAKEN = "jemalloc did not take it"

  def lint(inputs)
    Memscope::Lint.capture(Memscope::Lint.body_of(inputs).update(cost: LintInputs::COST.dup))
  end

  def jemalloc(...) = lint(LintInputs.jemalloc(...))

  def glibc(...) = lint(LintInputs.glibc(...))

  def problems(reading) = reading.problems.map { |problem| [problem.id, problem.severity] }

  def assert_problem(reading, id, text, severity: :warning)
    problem = reading.problems.find { |candidate| candidate.id == id }

    assert problem, "no #{id} among #{reading.problems.map(&:text)}"
    assert_match text, problem.text
    assert_equal severity, problem.severity
    problem
  end

  # The inputs for a MALLOC_CONF whose every pair jemalloc accepts.
  def taken(**values)
    { text: values.map { |name, value| "#{name}:#{value}" }.join(","), options: values,
      given: values.to_h { |name, value| [name, ["MALLOC_CONF", value.to_s]] } }
  end

  def taking(taken, **situation)
    jemalloc(taken[:text], options: taken[:options], given: taken[:given], **situation)
  end
end
