# frozen_string_literal: true

require_relative "../test_helper"

class StressTest < MemscopeTest
  parallelize_me!

  WORKLOADS = File.join(ChildProcess::ROOT, "test/support/workloads")
  SECONDS = Integer(ENV.fetch("SECONDS", "5"))

  both_allocators "levers under load" do |preload|
    answer = stressed("purge_stress.rb", preload)

    assert_empty answer["faults"]
    assert_operator answer["pulls"].values.min, :>, 0
    assert_operator answer["pulls"].values.sum, :>=, SECONDS * 5 # ten a second, on a machine that has time
    assert_operator answer["results"], :>, 0
  end

  both_allocators "ledgers under load" do |preload|
    answer = stressed("stress.rb", preload)

    assert_empty(answer["faults"])
    assert_operator(answer["ledgers"], :>, SECONDS)
    assert_operator(answer["forks"], :>, 0) unless ChildProcess::SANITIZER
  end

  def test_deep_ledgers_beside_threads_that_trim
    skip_under_sanitizer
    answer = stressed("deep_stress.rb", nil)

    assert_empty answer["faults"]
    assert_operator answer["ledgers"], :>, SECONDS
    assert_equal answer["ledgers"], answer["walked"]
  end

  private

  def stressed(workload, preload, env = {})
    child_json("load #{File.join(WORKLOADS, workload).dump}", preload: preload,
                                                              env: { "SECONDS" => SECONDS.to_s, **env },
                                                              timeout: SECONDS + 120)
  end
end

# The malloc profile's stress, its three ways beside each other: thirty seconds in bin/test, of six of each other one.
class MallocProfileStressTest < MemscopeTest
  parallelize_me!

  SECONDS = StressTest::SECONDS < 60 ? StressTest::SECONDS * 5 / 3 : StressTest::SECONDS
  # What samples, what serves malloc, and what the child needs for that.
  WAYS = {
    imports_under_glibc: [nil, { "BACKEND" => "imports" }],
    imports_under_jemalloc: ["libjemalloc.so.2", { "BACKEND" => "imports" }],
    jemalloc: ["libjemalloc.so.2", { "BACKEND" => "jemalloc",
                                     "MALLOC_CONF" => "prof:true,prof_active:false,prof_accum:true" }]
  }.freeze

  WAYS.each do |way, (preload, env)|
    define_method("test_#{way}") do
      skip_under_sanitizer unless way == :imports_under_glibc
      answer = child_json("load #{File.join(StressTest::WORKLOADS, 'profile_stress.rb').dump}",
                          preload: preload, env: { "SECONDS" => SECONDS.to_s, **env }, timeout: SECONDS + 120)

      assert_empty answer["faults"]
      assert_operator answer["samples"], :>, 1000
    end
  end
end
