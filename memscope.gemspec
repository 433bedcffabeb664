# frozen_string_literal: true

require_relative "lib/memscope/version"

Gem::Specification.new do |spec|
  spec.name = "memscope"
  spec.version = Memscope::VERSION
  spec.authors = ["the memscope authors"]
  spec.summary = "Where every resident byte of a Ruby process is"
  spec.description = "Attributes every resident page of the Ruby process it lives in to its proven owner (the Ruby " \
                     "heap, malloc by glibc or jemalloc, stacks, libraries), or says that it is unattributed. The " \
                     "rows sum to the RSS, exactly."
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"
  spec.metadata["rubygems_mfa_required"] = "true"
  # Known where a release is built (.github/workflows/release.yml), left out elsewhere.
  if ENV.key?("GITHUB_REPOSITORY")
    spec.homepage = ENV.values_at("GITHUB_SERVER_URL", "GITHUB_REPOSITORY").join("/")
    files = "#{spec.homepage}/blob/v#{spec.version}"
    spec.metadata.merge!("source_code_uri" => "#{spec.homepage}/tree/v#{spec.version}",
                         "changelog_uri" => "#{files}/CHANGELOG.md", "documentation_uri" => "#{files}/README.md",
                         "bug_tracker_uri" => "#{spec.homepage}/issues")
  end

  spec.files = Dir.chdir(__dir__) do
    Dir["lib/**/*.{rb,fields,words,tt,erb,css,js,svg,txt}", "ext/**/{depend,*.{c,h,def,ld,rb}}",
        "exe/*", "sig/**/*.rbs", "docs/**/*.{md,json}", "docs/web-overview.png",
        "*.md", "LICENSE.txt", ".yardopts", "rakelib/yard_fields.rb"]
  end
  spec.bindir = "exe"
  spec.executables = ["memscope"]
  spec.extensions = ["ext/memscope/extconf.rb"]
end
