# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/copying"
require_relative "../../support/in_directory"
require "minitest/mock"

class CopyExtensionTest < MemscopeTest
  include InDirectory

  Extension = Memscope::Copy::Extension

  def test_the_one_of_this_process
    assert_equal Extension.own, Extension.check(Extension.own) if File.realpath(Extension.own) == Extension.own

    assert_includes $LOADED_FEATURES, Extension.own
  end

  def test_that_of_another_ruby_in_its_own_gems
    planted = plant("lib/ruby/gems/3.2.0/extensions/x86_64-linux/3.2.0-static")
    plant("lib/ruby/gems/3.2.0/extensions/x86_64-linux/3.3.0")

    File.stub(:readlink, "#{@directory}/bin/ruby") { assert_equal planted, Extension.of(4711, "3.2.11") }
  end

  def test_that_of_another_ruby_beside_the_gems_of_this_one
    planted = plant("gem/ruby/3.2.0/extensions/x86_64-linux/3.2.0")

    File.stub(:readlink, "/nowhere/bin/ruby") do
      Gem.stub(:path, ["#{@directory}/gem/ruby/3.1.0"]) { assert_equal planted, Extension.of(4711, "3.2.11") }
    end
  end

  def test_that_of_a_binary_gem_of_another_ruby
    gem = "#{@directory}/lib/ruby/gems/3.2.0/gems/memscope-#{Memscope::VERSION}-x86_64-linux-gnu"
    planted = "#{gem}/lib/memscope/3.2/memscope.so"
    FileUtils.mkdir_p(File.dirname(planted))
    FileUtils.touch(planted)

    File.stub(:readlink, "#{@directory}/bin/ruby") { assert_equal planted, Extension.of(4711, "3.2.11") }
  end

  def test_where_there_is_none
    error = File.stub(:readlink, "#{@directory}/bin/ruby") do
      Gem.stub(:path, [@directory]) { assert_raises(Memscope::Client::Failed) { Extension.of(4711, "3.2.11") } }
    end

    assert_equal "process 4711 runs Ruby 3.2.11, for which memscope #{Memscope::VERSION} is not installed: run " \
                 "#{@directory}/bin/gem install memscope -v #{Memscope::VERSION}, or name its memscope.so (--so PATH)",
                 error.message
  end

  def test_files_that_others_can_change
    path = plant("dir")
    File.symlink(path, link)

    assert_equal path, Extension.check(link)
    assert_untrusted(path) { File.chmod(0o666, path) }
    assert_untrusted(File.dirname(path)) { File.chmod(0o770, File.dirname(path)) }
    assert_match(/No such file or directory\z/, refusal("#{@directory}/none"))
  end

  def test_files_of_another_user
    skip "only root can give files away" unless Process.euid.zero?
    path = plant("dir")
    File.symlink(path, link)

    assert_untrusted(path) { File.chown(65_534, nil, path) }
  end

  private

  def plant(directory)
    path = "#{@directory}/#{directory}/memscope-#{Memscope::VERSION}/memscope/memscope.so"
    FileUtils.mkdir_p(File.dirname(path), mode: 0o755)
    File.write(path, "")
    File.chmod(0o644, path)
    path
  end

  def refusal(path) = assert_raises(Memscope::Client::Failed) { Extension.check(path) }.message

  # The block opens a file or directory to others, for as long as the check.
  def assert_untrusted(open)
    mode = File.stat(open).mode
    yield

    assert_match(/\A#{open} belongs to another user, or others may write to it: /, refusal(link))
  ensure
    File.chmod(mode, open)
  end

  def link = "#{@directory}/link.so"
end
