# frozen_string_literal: true

require_relative "test_helper"

class GemspecTest < MemscopeTest
  URIS = { "source_code_uri" => "tree/v#{Memscope::VERSION}",
           "changelog_uri" => "blob/v#{Memscope::VERSION}/CHANGELOG.md",
           "documentation_uri" => "blob/v#{Memscope::VERSION}/README.md", "bug_tracker_uri" => "issues" }.freeze

  def test_a_release_links_to_the_repository_that_builds_it
    spec = loaded("GITHUB_SERVER_URL" => "https://git.example", "GITHUB_REPOSITORY" => "orbit/memscope")

    assert_equal "https://git.example/orbit/memscope", spec.homepage
    assert_equal URIS.transform_values { |path| "#{spec.homepage}/#{path}" }, spec.metadata.slice(*URIS.keys)
    assert_empty URIS.values.grep(%r{\Ablob/[^/]+/}) { |path| path[%r{\Ablob/[^/]+/(.*)}, 1] } - spec.files
  end

  def test_elsewhere_it_invents_no_link
    spec = loaded("GITHUB_SERVER_URL" => nil, "GITHUB_REPOSITORY" => nil)

    assert_nil spec.homepage
    assert_equal({ "rubygems_mfa_required" => "true" }, spec.metadata)
  end

  private

  # RubyGems keeps specifications that were loaded once.
  def loaded(env)
    script = 'print Gem::Specification.load("memscope.gemspec").to_yaml'
    ran = ChildProcess.run_command(RbConfig.ruby, "-e", script, env: env, chdir: ChildProcess::ROOT)

    Gem::Specification.from_yaml(ran.out)
  end
end
