# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/malloc_profile_ways"

class StressTest < MemscopeTest
  parallelize_me!

  WORKLOADS = File.join(ChildProcess::ROOT, "test/support/workloads")
  SECONDS = Integer(ENV.fetch("SECONDS", "5"))
  FEWEST = SECONDS.fdiv(2).ceil # of ledgers; forty times as many, on a machine that has time

  both_allocators "levers under load" do |preload|
    answer = stressed("purge_stress.rb", preload)

    assert_empty answer["faults"]
    assert_operator answer["pulls"].values.min, :>, 0
    assert_operator answer["pulls"].values.sum, :>=, SECONDS * 2 # ten a second, on a machine that has time
    assert_operator answer["results"], :>, 0
  end

  both_allocators "ledgers under load" do |preload|
    answer = stressed("stress.rb", preload)

    assert_empty(answer["faults"])
    assert_operator(answer["ledgers"], :>=, FEWEST)
    assert_operator(answer["forks"], :>, 0) unless ChildProcess::SANITIZER
  end

  def test_deep_ledgers_beside_threads_that_trim
    skip_under_sanitizer
    answer = stressed("deep_stress.rb", nil)

    assert_empty answer["faults"]
    assert_operator answer["ledgers"], :>=, FEWEST
    assert_equal answer["ledgers"], answer["walked"]
  end

  private

  def stressed(workload, preload, env = {})
    child_json("load #{File.join(WORKLOADS, workload).dump}", preload: preload,
                                                              env: { "SECONDS" => SECONDS.to_s, **env },
                                                              timeout: SECONDS + 300)
  end
end

# The malloc profile's stress, in three ways at the same time: each takes five seconds in bin/check, where each other
# stress test takes three.
class MallocProfileStressTest < MemscopeTest
  extend MallocProfileWays

  parallelize_me!

  SECONDS = StressTest::SECONDS < 60 ? StressTest::SECONDS * 5 / 3 : StressTest::SECONDS
  WAYS = MallocProfileWays::ALL

  each_way("samples_without_faults") do |settings|
    answer = child_json("load #{File.join(StressTest::WORKLOADS, 'profile_stress.rb').dump}",
                        timeout: SECONDS + 300, **settings, env: { "SECONDS" => SECONDS.to_s, **settings[:env] })

    assert_empty answer["faults"]
    assert_operator answer["samples"], :>, 1000
  end
end
