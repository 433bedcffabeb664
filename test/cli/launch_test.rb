# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/compiled"
require "memscope/cli/launch"
require "tmpdir"

class LaunchTest < MemscopeTest
  Launch = Memscope::Launch

  def in_directory
    Dir.mktmpdir("memscope") { |directory| yield File.realpath(directory) }
  end
end

class LaunchProgramTest < LaunchTest
  def with_script(text)
    in_directory do |directory|
      path = File.join(directory, "script")
      File.binwrite(path, text)
      File.chmod(0o755, path)
      yield path
    end
  end

  def test_nothing_is_known_of_scripts_and_of_what_is_not_there
    ["#!/bin/sh\n", ""].each { |text| with_script(text) { |path| assert_nil Launch.stranger(path) } }

    ["nowhere-to-be-found", "/nowhere/script", "", "/"].each { |name| assert_nil Launch.stranger(name) }
  end

  def test_what_is_not_this_ruby
    assert_equal([nil, "/bin/true"], ["ruby", "/bin/true"].map { |name| Launch.stranger(name) })
    assert_match(%r{/sh\z}, Launch.stranger("sh"))
    assert_nil Launch.stranger("env")
  end
end
