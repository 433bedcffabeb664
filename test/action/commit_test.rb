# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../../action/commit"
require "fileutils"
require "tmpdir"

# Commits of a clone. Of measurements, see acceptance/action_test.rb.
class ActionCommitTest < MemscopeTest
  # A clone of a repository with two commits; its branch `release` exists only there, as origin/release.
  def in_clone(*options)
    Dir.mktmpdir do |directory|
      @directory = File.realpath(directory)
      git("init", "--quiet", "--initial-branch=main", "theirs")
      FileUtils.mkdir(File.join(@directory, "theirs/admin"))
      File.write(File.join(@directory, "theirs/admin/config.ru"), "")
      git("-C", "theirs", "add", ".")
      2.times { |i| git("-C", "theirs", "commit", "--quiet", "--allow-empty", "--message=#{i}") }
      git("-C", "theirs", "branch", "release")
      git("clone", "--quiet", *options, "file://#{@directory}/theirs", "ours")
      Dir.chdir(File.join(@directory, "ours")) { yield File.join(@directory, "head") }
    end
  end

  def git(*arguments)
    author = %w[-c user.name=a -c user.email=a@b]
    ran = ChildProcess.run_command("git", *author, *arguments, chdir: @directory)

    assert_predicate ran, :success?, ran
    ran.out.chomp
  end

  def commits = Integer(git("-C", "ours", "rev-list", "--count", "--all"))

  # What `prepare` finds in a variable, with this .bundle/config.
  def prepared(variable, settings)
    FileUtils.mkdir_p("admin/.bundle")
    File.write("admin/.bundle/config", settings)
    usual = ENV.delete("BUNDLE_GEMFILE")
    text = "#{root = File.join(@directory, variable)}.text"
    Memscope::Commit.new("HEAD", root, { app: "admin/config.ru", prepare: "printf %s \"$#{variable}\" >#{text}" })
    File.read(text)
  ensure
    ENV["BUNDLE_GEMFILE"] = usual
  end

  def test_a_full_clone_keeps_its_history
    in_clone do |root|
      Memscope::Commit.new("release", root, {})

      assert_equal 2, commits
      git("-C", "theirs", "commit", "--quiet", "--allow-empty", "--message=2")
      newest = git("-C", "theirs", "rev-parse", "HEAD")

      assert newest.start_with?(Memscope::Commit.new(newest, "#{root}2", {}).name)
      refute_path_exists ".git/shallow"
    end
  end

  def test_a_shallow_clone_stays_shallow
    in_clone("--depth=1") do |root|
      Memscope::Commit.new("release", root, {})

      assert_equal 1, commits
    end
  end

  def test_a_reference_is_no_option
    in_clone do |root|
      error = assert_raises(Memscope::Commit::Failed) { Memscope::Commit.new("--upload-pack=touch x", root, {}) }

      assert_equal "--upload-pack=touch x is no name of a commit", error.message
    end
  end

  def test_a_command_that_fails_is_named_as_it_was_given
    in_clone do |root|
      error = assert_raises(Memscope::Commit::Failed) do
        Memscope::Commit.new("HEAD", root, { app: "config.ru", prepare: "exit 3 # 'now'" })
      end

      assert_match(/\A\h+: failed: exit 3 # 'now' \(see the log\)\z/, error.message)
    end
  end

  def test_the_bundle_starts_at_the_gemfile
    in_clone do
      assert_equal "", prepared("BUNDLE_GEMFILE", "---\n")
      assert_equal "#{@directory}/ours/admin/vendor/bundle", prepared("BUNDLE_PATH", "BUNDLE_PATH: vendor/bundle\n")
    end
  end
end
