# frozen_string_literal: true

require_relative "../test_helper"

class StressTest < MemscopeTest
  WORKLOAD = File.join(ChildProcess::ROOT, "test/support/workloads/stress.rb")
  SECONDS = Integer(ENV.fetch("SECONDS", "5"))

  both_allocators "ledgers under load" do |preload|
    answer = child_json("load #{WORKLOAD.dump}", preload: preload, env: { "SECONDS" => SECONDS.to_s },
                                                 timeout: SECONDS + 120)

    assert_empty(answer["faults"])
    assert_operator(answer["ledgers"], :>, SECONDS)
    assert_operator(answer["forks"], :>, 0)
  end
end
