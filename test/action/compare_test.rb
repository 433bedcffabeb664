# frozen_string_literal: true

require_relative "../test_helper"
require "tmpdir"

# Options and exit statuses. Of measurements, see acceptance/action_test.rb.
class ActionCompareTest < MemscopeTest
  SCRIPT = File.expand_path("../../action/compare.rb", __dir__)

  def compare(*arguments, **options) = ChildProcess.run_command(RbConfig.ruby, SCRIPT, *arguments, **options)

  def test_help
    ran = compare("--help")

    assert_predicate ran, :success?, ran
    assert_equal 1, ran.out.scan("--base REF").size
  end

  def test_wrong_options
    { "--requests=50" => "--requests=50 is not a number from 100 to 1000000",
      "--objects-limit=few" => "--objects-limit=few is not a number from 0",
      "--paths=/ orders" => "--paths: orders has no leading /" }.each do |option, message|
      ran = compare("--base=main", option)

      assert_equal [64, "", "invalid argument: #{message}\n"], [ran.status.exitstatus, ran.out, ran.err]
    end
  end

  # An error's own exit status, 1, would say that something grew.
  def test_without_git
    Dir.mktmpdir do |directory|
      ran = compare("--base=main", "--output=#{directory}/text", env: { "PATH" => directory })

      assert_equal 74, ran.status.exitstatus, ran
      assert_equal "### memscope: not measured\nNo such file or directory - git\n",
                   File.read("#{directory}/text").lines.drop(1).join
      assert_equal 74, compare("--base=0", "--output=#{directory}/no/text").status.exitstatus
    end
  end
end
