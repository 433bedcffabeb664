# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/ledger_tree"
require_relative "../support/malloc_profile_ways"

# The least that memscope must do wherever it compiles: on a Ruby that is not released yet, on another processor. Takes
# two seconds, and minutes under emulation.
class SmokeTest < MemscopeTest
  extend MallocProfileWays

  parallelize_me!

  WAYS = MallocProfileWays::ALL
  MIB = 1024 * 1024

  both_allocators "the ledger closes" do |preload|
    report, deep = child_json(<<~RUBY, preload: preload, requires: ["json"])
      kept = Array.new(20_000) { |index| "x" * (index % 1_000) }
      ledger = Memscope.ledger(deep: true)
      puts JSON.generate([Memscope.ledger.to_s, JSON.parse(ledger.to_json), kept.size])
    RUBY
    tree = LedgerTree.new(deep)

    assert_includes report, "The kernel says"
    assert_empty tree.gaps
    assert_in_delta deep["statm_before_bytes"], tree.rss_bytes, MIB
    %w[ruby_heap/live_slots malloc stacks/main files/c_library].each do |path|
      assert_operator tree.bytes(path), :>, 0, path
    end
    assert_operator tree.bytes("unattributed"), :<, tree.rss_bytes / 50, tree.to_s
    tree.rows.each { |path, row| assert row["check"]["verified"], "#{path}: #{row['check']}" if row["check"] }
  end

  each_way("the_profile_names_a_line") do |options|
    line, share, live = child_json(<<~RUBY, requires: ["json"], **options)
      profile = Memscope.malloc_profile(backend: ENV["BACKEND"].to_sym, rate: 2**16) do
        $kept = Array.new(4_000) { "x" * 10_000 } # line 2
      end
      first = profile.by(:line).first
      puts JSON.generate(["\#{first.path}:\#{first.lineno}", first.share, first.live_bytes])
    RUBY

    assert_equal "-e:2", line
    assert_operator share, :>, 0.9
    assert_in_delta 40_000_000, live, 8_000_000 # 600 samples: five standard errors
  end
end
