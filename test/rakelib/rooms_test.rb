# frozen_string_literal: true

require "minitest/autorun"
require_relative "../../rakelib/rooms"

class RoomsTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)

  def test_the_tree_keeps_the_rules
    Dir.chdir(ROOT) do
      assert_empty Rooms.ext.violations
      assert_empty Rooms.lib.violations
      assert_empty Rooms.lib.circles
    end
  end

  def test_files_that_name_one_another_are_found
    planted = { "lib/memscope/value/terms.rb" => "require_relative \"quantity\"\n",
                "lib/memscope/value/quantity.rb" => "module Memscope\n  TtlCache.new\nend\n",
                "lib/memscope/value/ttl_cache.rb" => "module Memscope\n  Loading.unit(:Terms)\nend\n",
                "lib/memscope/value/forks.rb" => "module Memscope\n  Terms.own?\nend\n" }

    assert_equal([planted.keys.first(3).sort], Dir.chdir(ROOT) { Rooms.lib.circles(planted) })
  end

  def test_a_wrong_include_is_found
    text = "#include \"kernel/process.h\"\n\n#  include \"ledger/claims.h\"\n#include <stdio.h>\n"

    assert_equal ["ext/memscope/engine/kernel/process.c:3: kernel may not name ledger " \
                  "(ext/memscope/engine/ledger/claims.h), only kernel, base"],
                 violations("ext/memscope/engine/kernel/process.c" => text)
  end

  def test_the_engine_may_not_know_ruby
    text = "#include \"values.h\"\n#include \"ruby/heap/ruby_heap.h\"\n"
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

  def test_a_wrong_require_is_found
    assert_equal ["lib/memscope/process/ledger.rb:2: process may not name web (lib/memscope/web/access.rb), only " \
                  "process, value"],
                 lib_violations("lib/memscope/process/ledger.rb" => "# web\nrequire_relative \"../web/access\"\n")
  end

  def test_a_wrong_constant_is_found
    text = "  # Web::Access\n  Purge.missing\n  \"Purge \#{Report.render(self)}\"\n  Quantity\n"

    assert_equal ["lib/memscope/judge/lint/glibc.rb:2: judge may not name action (lib/memscope/action/purge.rb), " \
                  "only judge, value, process, heap",
                  "lib/memscope/judge/lint/glibc.rb:3: judge may not name show (lib/memscope/show/report.rb), " \
                  "only judge, value, process, heap"],
                 lib_violations("lib/memscope/judge/lint/glibc.rb" => text)
  end

  def test_a_constant_is_looked_up_as_ruby_does
    text = "module Memscope\n  class HeapGraph < Reading\n    Growth.new\n  end\n  Profile::Growth\nend\n"
    violations = lib_violations("lib/memscope/value/reading.rb" => text)
    files = violations.map { |line| line.match(/:(\d+): .*\((.*?)\)/).captures }

    assert_equal [%w[3 lib/memscope/heap/heap_graph/growth.rb], %w[5 lib/memscope/profile/growth.rb]], files
  end

  def test_a_constant_that_is_to_be_loaded_is_named
    text = "Memscope::Loading.units :Census, :Web\nLoading.unit(:Doctor)\n"
    named = lib_violations("lib/memscope/process/ledger.rb" => text).map { |line| line[/:(\d+: .*) \(/, 1] }

    assert_equal ["1: process may not name heap", "1: process may not name web", "2: process may not name judge"], named
  end

  def test_a_call_of_the_facade_in_an_inner_room_is_found
    text = "Memscope.ledger(deep: true) # Memscope.arenas\n\"Memscope.ledger\"\n"
    wrong = lib_violations("lib/memscope/judge/doctor/evidence.rb" => text)

    assert_equal 1, wrong.size
    assert_match(%r{\Alib/memscope/judge/doctor/evidence.rb:1: judge may not name setup }, wrong.first)
    assert_empty lib_violations("lib/memscope/cli/doctor_command.rb" => text)
  end

  def test_text_in_a_quoted_heredoc_names_nothing
    text = "A = <<-'TEXT'\n  Memscope.ledger\n TEXT\nMemscope.arenas\n"

    assert_match(/\A\S+:4: /, lib_violations("lib/memscope/judge/doctor/evidence.rb" => text).join("|"))
  end

  private

  def lib_violations(sources) = Dir.chdir(ROOT) { Rooms.lib.violations(sources) }

  def violations(sources) = Dir.chdir(ROOT) { Rooms.ext.violations(sources) }
end
