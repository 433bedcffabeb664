# frozen_string_literal: true

require_relative "../test_helper"
require "etc"
require "rubygems/package"
require "tmpdir"

# The gem as others get it: built, installed into an empty directory, compiled there, and read with.
class PackagingTest < MemscopeTest
  parallelize_me!

  def test_the_gem_installs_and_reads
    skip "the gem is built without a sanitizer" if ChildProcess::SANITIZER
    Dir.mktmpdir do |directory|
      gem = File.join(directory, "memscope.gem")
      home = File.join(directory, "gems")
      run_gem("build", "memscope.gemspec", "-o", gem)
      run_gem("install", "--local", "--no-document", "--install-dir", home, gem)

      assert_contents(Gem::Package.new(gem).spec)
      assert_reads("GEM_HOME" => home, "GEM_PATH" => home)
    end
  end

  private

  def run_gem(*arguments)
    result = ChildProcess.run_command(RbConfig.ruby, "-C", ChildProcess::ROOT, "-S", "gem", *arguments,
                                      env: { "MAKEFLAGS" => "-j#{Etc.nprocessors}" }, timeout: 600)

    assert_predicate(result, :success?, result.to_s)
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
