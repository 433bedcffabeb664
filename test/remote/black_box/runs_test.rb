# frozen_string_literal: true

require_relative "../../test_helper"
require "time"

class RunsTest < MemscopeTest
  RUNS = Memscope::BlackBox::Runs

  def tags = RUNS.now.map { |run| run[:tag] }

  def test_the_runs_of_all_threads_the_longest_first
    ready = Queue.new
    over = Queue.new
    thread = Thread.new do
      RUNS.during("ImportJob") do
        ready.push(true)
        over.pop
      end
    end
    thread.name = "job"
    ready.pop
    sleep 0.002 # the times are in milliseconds
    RUNS.during("inner") do
      assert_equal %w[ImportJob inner], tags
      assert_equal "job", RUNS.now.first[:thread]
      assert_in_delta Time.now.to_f, Time.parse(RUNS.now.last[:since]).to_f, 60
    end

    assert_equal %w[ImportJob], tags
  ensure
    over.push(true)
    thread.join

    assert_empty tags
  end

  def test_a_request_is_named_by_what_the_router_has_set
    environment = { "PATH_INFO" => "/orders/secret" }
    RUNS.during(environment) do
      assert_equal ["a request without a route"], tags
      environment["action_dispatch.request.path_parameters"] =
        { controller: "admin/big_orders", action: "show", id: "7" }

      assert_equal ["Admin::BigOrdersController#show"], tags
    end
    RUNS.during({ "sinatra.route" => "GET /orders/:id" }) { assert_equal ["GET /orders/:id"], tags }
    RUNS.during({ "action_dispatch.request.path_parameters" => {} }) do
      assert_equal ["a request without a route"], tags
    end
  end

  def test_a_run_that_raises_is_over
    assert_raises(ArgumentError) { RUNS.during("job") { raise ArgumentError } }
    assert_empty tags
  end
end
