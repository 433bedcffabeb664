# frozen_string_literal: true

require_relative "../test_helper"

class GemfileTest < MemscopeTest
  # If reading the Gemfile loads YAML, RubyGems chooses a psych before Bundler does. Where stringio, which psych needs,
  # is there in two versions, each command of the bundle then begins with warnings of unresolved specifications.
  def test_bundler_starts_without_yaml_and_without_warnings
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    env = { "BUNDLE_GEMFILE" => File.join(ChildProcess::ROOT, "Gemfile"),
            "BUNDLE_MEMSCOPE_SOURCE" => Gem.sources.first.uri.to_s }
    result = ChildProcess.run("puts defined?(Psych).inspect.dump", gems: true, requires: ["bundler/setup"], env: env)

    assert_empty result.err
    assert_equal "nil", result.json
  end
end
