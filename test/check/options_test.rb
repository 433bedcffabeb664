# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/checked_in_child"

# What a check takes, and what follows from it.
class CheckOptionsTest < MemscopeTest
  include CheckedInChild

  parallelize_me!

  { iterations: [9, "an Integer from 10 to 1,000,000"], runs: [1, "an Integer from 2 to 100"],
    warmup: [:long, ":auto, a number of iterations"], max: [-1, "an Integer, 0 or more"],
    ignore: [4, "a Class, the name of a class, a Regexp, :malloc, a list of these"],
    in: [:thread, "nil, :fork, :process"], deadline: [0, "a number of seconds from 0.1 to 3600"] }
    .each do |name, (given, allowed)|
    define_method("test_a_wrong_#{name}_is_refused") do
      error = assert_raises(ArgumentError) { Memscope::Check.run(**{ name => given }) { flunk } }

      assert_equal "Memscope::Check.run: #{name}: given #{given.inspect}, allowed: #{allowed}", error.message
      assert_equal ["Memscope::Check.run", name.to_s], [error.call, error.argument]
    end
  end

  def test_other_wrong_arguments_are_refused
    unknown = assert_raises(ArgumentError) { Memscope::Check.run(rounds: 3) { flunk } }

    assert_match(/given :rounds, allowed: iterations, runs, warmup, max, ignore, in, deadline/, unknown.message)
    assert_match(/no block given/, assert_raises(ArgumentError) { Memscope::Check.run }.message)
  end

  def test_with_a_transaction_open_the_block_runs_in_the_process
    here, elsewhere, asked = child_json(<<~RUBY, requires: REQUIRES, gems: true)
      Connection = Struct.new(:transaction_open?)
      Pool = Struct.new(:connections)
      OPEN = Connection.new(true)
      HANDLER = Class.new { def connection_pool_list(_role) = [Pool.new([OPEN])] }.new
      module ActiveRecord
        module Base; def self.connection_handler = HANDLER; end
        def self.version = Gem::Version.new("7.2.0")
      end
      CALLS = []
      checks = [true, false, true].zip([nil, nil, :fork]).map do |open, place|
        OPEN[:transaction_open?] = open
        [Memscope::Check.run(in: place) { CALLS << 1 if CALLS.size < 50 }.to_h, CALLS.size]
      end
      puts JSON.generate(checks)
    RUBY

    assert_equal ["process", 50], [here.first["ran_in"], here.last]
    assert_match(/a database connection has an open transaction/, here.first.dig("reasons", "ran_in"))
    assert_equal ["child", {}], elsewhere.first.values_at("ran_in", "reasons")
    assert_equal "child", asked.first["ran_in"]
  end

  # One in every second iteration counts as one per iteration; one in every tenth does not.
  def test_rare_leaks_need_longer_rounds
    tenth = "KEPT << Object.new if ((n += 1) % 10).zero?"

    refute_predicate ran("n = 0; KEPT = []", "{ #{tenth} }", QUICK), :grows?
    assert_predicate ran("n = 0; KEPT = []", "{ 10.times { #{tenth} } }", QUICK), :grows?
  end

  # The 1,500 iterations of the first check all fill the cache; the 200 after the warm-up of the second do not.
  def test_a_cache_that_is_still_filling_needs_a_longer_warm_up
    block = "{ n += 1; (@cache ||= {})[n] = Object.new if n <= 2_500 }"

    assert_predicate ran("n = 0", block), :grows?
    refute_predicate ran("n = 0", block, "warmup: 2_500"), :grows?
  end
end
