# frozen_string_literal: true

require "minitest/autorun"
require_relative "../../rakelib/rooms"

class RoomsTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)

  def test_the_tree_keeps_the_rules
    Dir.chdir(ROOT) do
      assert_empty Rooms.ext.violations
      assert_empty Rooms.lib.violations
    end
  end

  def test_a_wrong_include_is_found
    text = "#include \"kernel/process.h\"\n\n#  include \"ledger/claims.h\"\n#include <stdio.h>\n"

    assert_equal ["ext/memscope/engine/kernel/process.c:3: kernel may not name ledger " \
                  "(ext/memscope/engine/ledger/claims.h), only kernel, base"],
                 violations("ext/memscope/engine/kernel/process.c" => text)
  end

  def test_the_engine_may_not_know_ruby
    text = "#include \"values.h\"\n#include \"ruby/ruby_heap.h\"\n"
    wrong = violations("ext/memscope/engine/ledger/ledger.c" => text)

    assert_equal(%w[1 2], wrong.map { |line| line[/:(\d+): ledger may not name/, 1] })
  end

  def test_an_include_without_its_room
    assert_equal ["ext/memscope/engine/kernel/sharing.c:1: ext/memscope/process.h is in no room"],
                 violations("ext/memscope/engine/kernel/sharing.c" => "#include \"process.h\"\n")
  end

  def test_a_file_without_a_room
    assert_equal ["ext/memscope/engine/new.c: in no room of rakelib/rooms.rb",
                  "ext/memscope/engine/base/new/deep.c: in no room of rakelib/rooms.rb"],
                 violations("ext/memscope/engine/new.c" => "", "ext/memscope/engine/base/new/deep.c" => "")
  end

  private

  def violations(sources) = Dir.chdir(ROOT) { Rooms.ext.violations(sources) }
end
