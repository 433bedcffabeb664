# frozen_string_literal: true

require_relative "test_helper"

# Tests are where one expects them: test/<path>_test.rb (or .c) is about <path>.rb or the room <path>/ in lib/memscope,
# or about <path>.c or <path>/ in ext/memscope. test/acceptance is about what a person does, test/fuzz about parsers.
class TreeTest < MemscopeTest
  # The subjects of these tests have no file of their own.
  EXCEPTIONS = {
    "contract" => "the names that programs rely on",
    "engine/c_tests" => "the C tests of the engine, which it builds and runs",
    "engine/trend/verdict_battery" => "the room trend, against traces of memory with known truth",
    "facade_documentation" => "what the documentation and the signatures promise",
    "memscope" => "lib/memscope.rb",
    "judge/policy/battery" => "the policy, in simulated clusters over days",
    "tree" => "this tree"
  }.freeze
  ELSEWHERE = %r{\Atest/(?:acceptance|fuzz|support|fixtures)/}
  HOMES = %w[lib/memscope ext/memscope lib .].freeze

  def test_each_test_is_named_after_what_it_is_about
    lost = tests.reject do |path|
      subject = path.delete_prefix("test/").sub(/_test\.(?:rb|c)\z/, "")
      EXCEPTIONS.key?(subject) || HOMES.any? { |home| home?(File.join(home, subject)) }
    end

    assert_empty lost
  end

  def test_each_file_of_the_library_has_its_test
    assert_empty untested(Dir["lib/**/*.rb", base: ChildProcess::ROOT])
  end

  def test_a_file_without_its_test_is_found
    planted = "lib/memscope/show/report/planted.rb"

    assert_equal [planted], untested(["lib/memscope.rb", planted, "lib/memscope/web.rb", "lib/puma/plugin/memscope.rb"])
  end

  def test_the_exceptions_are_there
    assert_empty(EXCEPTIONS.keys.reject { |name| File.exist?(rooted("test/#{name}_test.rb")) })
  end

  private

  def tests = Dir["test/**/*_test.{rb,c}", base: ChildProcess::ROOT].grep_v(ELSEWHERE).sort

  # The files of lib that have no test at their path, which leaves lib/memscope/, or lib/, out.
  def untested(files)
    files.reject do |path|
      File.exist?(rooted("test/#{path.delete_prefix('lib/').delete_prefix('memscope/').delete_suffix('.rb')}_test.rb"))
    end
  end

  def home?(path) = ["", ".rb", ".rake", ".c", ".h"].any? { |ending| File.exist?(rooted(path + ending)) }

  def rooted(path) = File.join(ChildProcess::ROOT, path)
end
