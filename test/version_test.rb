# frozen_string_literal: true

require_relative "test_helper"

class VersionTest < MemscopeTest
  def read(name) = File.read(File.join(ChildProcess::ROOT, name))

  def test_the_changelog_has_no_version_that_is_newer
    sections = read("CHANGELOG.md").scan(/^## \[?(Unreleased|\d+\.\d+\.\d+)/).flatten
    released = (sections - ["Unreleased"]).map { |version| Gem::Version.new(version) }

    assert_includes ["Unreleased", Memscope::VERSION], sections.first
    assert_equal released.sort.reverse, released, "the newest first"
    assert_empty(released.select { |version| version > Gem::Version.new(Memscope::VERSION) })
  end

  def test_the_gem_has_it
    assert_equal Memscope::VERSION,
                 Gem::Specification.load(File.join(ChildProcess::ROOT, "memscope.gemspec")).version.to_s
    assert_match(/\A\d+\.\d+\.\d+\z/, Memscope::VERSION)
  end
end
