# frozen_string_literal: true

require_relative "../test_helper"
require "tmpdir"
require "memscope/value/requirement"

class RequirementTest < MemscopeTest
  def load(**given) = Memscope::Requirement.load("memscope/orbit", **given)

  def test_a_gem_that_is_there_is_loaded
    with_file("orbit_feature.rb", "ORBIT_FEATURE = 1") { load(gem: "orbit", feature: "orbit_feature") }

    assert_equal 1, ORBIT_FEATURE
  end

  def test_one_that_is_missing_is_named_with_its_line_for_the_gemfile
    { {} => 'gem "orbit-gem"', { version: ">= 2.2" } => 'gem "orbit-gem", ">= 2.2"' }.each do |given, line|
      error = assert_raises(LoadError) { load(gem: "orbit-gem", **given) }

      assert_equal "memscope/orbit needs the gem orbit-gem, which is not installed: add `#{line}` to the Gemfile",
                   error.message
    end
  end

  def test_one_that_lacks_something_itself_is_not_called_missing
    with_file("orbit_broken.rb", 'require "orbit_part_that_is_not_there"') do
      error = assert_raises(LoadError) { load(gem: "orbit_broken") }

      assert_match(/cannot load such file -- orbit_part_that_is_not_there/, error.message)
    end
  end

  private

  def with_file(name, text)
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, name), text)
      $LOAD_PATH.unshift(directory)
      yield
    ensure
      $LOAD_PATH.delete(directory)
    end
  end
end
