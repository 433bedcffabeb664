# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/command_line"
require "tmpdir"

class CLIPurgeTest < MemscopeTest
  include CommandLine

  def test_purge
    ran = run_memscope("purge", "gc")

    assert_equal 0, ran.status
    assert_match(/^ +– +[-\d.]+ +[-\d.]+ +[\d.]+  gc, which holds the GVL$/, ran.out)
    assert_match(/\Amemscope purge: this is the memscope process itself \(.*\n\z/, ran.err)
  end

  def test_purge_as_json_and_to_a_file
    Dir.mktmpdir do |directory|
      path = File.join(directory, "purge.json")
      levers = Memscope::Purge.missing.select { |_lever, missing| missing.nil? }.keys.first(2)
      ran = run_memscope("purge", "--dry-run", "--json", "--output", path, *levers.reverse.map(&:name))
      result = Memscope::Purge::Result.from_h(JSON.parse(File.read(path)))

      assert_equal [0, ""], [ran.status, ran.out]
      assert_equal [levers, true], [result.levers.map(&:name), result.dry_run?]
    end
  end

  def test_purge_refuses_what_is_not_there
    skip_under_sanitizer
    allowed = Memscope::Purge.missing.select { |_lever, missing| missing.nil? }.keys.map(&:inspect).join(", ")
    lever = "memscope purge: lever: given :vacuum, allowed: #{allowed}"

    assert_refused lever, "purge", "gc", "vacuum"
  end
end
