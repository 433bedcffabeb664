# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/cli/launch"

class HandoffTest < MemscopeTest
  Launch = Memscope::Launch

  Handoff = Launch::Handoff

  # The orders that this process finds if it acts as the program, and what it leaves in the environment.
  def taken(environment)
    before = ENV.to_h
    ENV.delete("RUBYOPT") # Bundler's, if it runs the tests
    ENV.update(environment.changes)
    [Handoff.read, ENV.to_h.select { |name, _| name.match?(/\A(RUBYOPT|MEMSCOPE_AUTORUN_.*)\z/) }]
  ensure
    ENV.replace(before)
  end

  def given(mode, environment = {}, **order)
    Launch::Environment.new(environment).tap { |changed| Handoff.write(mode, changed, **order) }
  end

  def test_an_order_arrives_whole_and_leaves_nothing
    given = given("proof", { "RUBYOPT" => "-W0 -rset" }, output: "/tmp/a b=c\n\"é\xFF", json: nil, every: 1.5)
    orders, left = taken(given)
    order = orders.fetch("proof")

    assert_equal [["proof"], "/tmp/a b=c\n\"é\xFF", 1.5], [orders.keys, order[:output], order[:every]]
    assert_nil order[:json]
    assert_equal({ "RUBYOPT" => "-W0 -rset" }, left)
  end

  def test_an_order_may_be_kept_for_what_the_process_becomes
    %w[report profile leaks requires].each do |mode|
      environment = given(mode)

      assert_equal environment.changes, taken(environment).last
    end
  end

  def test_several_orders_share_one_file_which_the_last_one_takes_away
    environment = given("report")
    kept = environment.changes.dup
    Handoff.write("proof", environment, expected: "jemalloc")
    orders, left = taken(environment)

    assert_equal %w[proof report], orders.keys
    assert_equal kept, left
    assert_equal 1, left["RUBYOPT"].scan("autorun").size
  end

  def test_another_process_withdraws_it
    assert_equal [{}, { "RUBYOPT" => "-W0" }], taken(given("report", { "RUBYOPT" => "-W0" }, pid: 1))
  end
end
