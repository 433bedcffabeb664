# frozen_string_literal: true

require_relative "../test_helper"
require "etc"
require "rubygems/package"
require "tmpdir"

# The gem as others get it: built, installed into an empty directory, compiled there, and used for a reading.
class PackagingTest < MemscopeTest
  parallelize_me!

  # The homepage is known only where a release is built.
  KNOWN_WARNINGS = ["no homepage specified"].freeze

  def test_the_gem_installs_and_reads
    skip "the gem is built without a sanitizer" if ChildProcess::SANITIZER
    Dir.mktmpdir do |directory|
      gem = File.join(directory, "memscope.gem")
      home = File.join(directory, "gems")
      built = run_gem("build", "memscope.gemspec", "-o", gem)
      run_gem("install", "--local", "--no-document", "--install-dir", home, gem)

      assert_equal(KNOWN_WARNINGS, built.err.scan(/^WARNING: ++(?!See )(.*?)\.?$/).flatten)
      assert_contents(Gem::Package.new(gem).spec)
      assert_reads("GEM_HOME" => home, "GEM_PATH" => home)
    end
  end

  # Links and pictures in the documents that are part of the gem.
  def test_documents_lead_to_what_ships_with_them
    files = Gem::Specification.load(File.join(ChildProcess::ROOT, "memscope.gemspec")).files
    missing = files.grep(/\.md\z/).flat_map do |document|
      targets = File.read(File.join(ChildProcess::ROOT, document)).scan(/\]\(([^)\s#]+)[^)]*\)/).flatten
      targets.grep_v(/\A\w+:/).map { |target| File.expand_path(target, "/#{File.dirname(document)}")[1..] } - files
    end

    assert_empty(missing)
  end

  private

  # Compiles without optimization, which halves the time.
  def run_gem(*arguments)
    result = ChildProcess.run_command(RbConfig.ruby, "-C", ChildProcess::ROOT, "-S", "gem", *arguments,
                                      env: { "MAKEFLAGS" => "-j#{Etc.nprocessors} CFLAGS=-fPIC",
                                             "GITHUB_REPOSITORY" => nil }, timeout: 600)

    assert_predicate(result, :success?, result.to_s)
    result
  end

  def assert_contents(specification)
    assert_includes(specification.files, "ext/memscope/extconf.rb")
    assert_includes(specification.files, "lib/generators/memscope/install/templates/memscope.rb.tt")
    assert_empty(Dir["lib/memscope/web/**/*.*", base: ChildProcess::ROOT] - specification.files)
    assert_empty(specification.files.grep(%r{\A(test|benchmark|bin|tmp|vendor)/|\.so\z}))
    assert_empty(specification.runtime_dependencies)
    assert_equal("true", specification.metadata["rubygems_mfa_required"])
  end

  def assert_reads(env)
    result = ChildProcess.run_command(RbConfig.ruby, "-e", <<~RUBY, env: env)
      require "memscope"
      ledger = Memscope.ledger
      exit(ledger.rows.sum(&:bytes) == ledger.rss_bytes)
    RUBY
    report = ChildProcess.run_command(RbConfig.ruby, "-S", File.join(env["GEM_HOME"], "bin", "memscope"), "report",
                                      env: env)

    assert_predicate(result, :success?, result.to_s)
    assert_predicate(report, :success?, report.to_s)
    assert_includes(report.out, "The kernel says")
  end
end
