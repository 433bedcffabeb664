# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/restart_table"

# The policy in simulated clusters: what it must never do, it never does, and it loses fewer processes to the kernel
# than other rules, with no more restarts. `rake battery:policy` runs the long form; benchmark/policy.rb prints the
# table.
class PolicyBatteryTest < MemscopeTest
  LONG = ENV.key?("MEMSCOPE_SEEDS")
  SEEDS = RestartTable.seeds(ENV.fetch("MEMSCOPE_SEEDS", "1"))
  STEPS = Integer(ENV.fetch("MEMSCOPE_STEPS", "5000"))
  KINDS = LONG ? ClusterTrace::KINDS : %i[fast_leak failing_boots tight_limit mixture]
  # Within mere hours, chance decides which boots fail.
  COMPARED = LONG ? KINDS : %i[fast_leak tight_limit]
  RIVALS = ["puma_worker_killer", *("the same, sharing added" if LONG), "GitLab's watchdog"].freeze
  LOSSES = %i[restarts lost_seconds].freeze

  def test_no_rule_is_ever_broken
    runs = KINDS.product(SEEDS).map do |kind, seed|
      rule = RestartRules::Policy.new(faults: Random.new(seed))
      result = WorkerCluster.new(ClusterTrace.new(kind, seed, STEPS * WorkerCluster::STEP), rule).run(STEPS)

      assert_empty rule.broken
      [result, rule.decisions]
    end

    assert_operator runs.sum { |_, decisions| decisions[:restart] }, :>, KINDS.size
    assert_equal(runs.sum { |_, decisions| decisions[:restart] }, runs.sum { |result, _| result.restarts })
  end

  def test_the_checks_find_what_a_careless_policy_breaks
    careless = Memscope::Policy.new(min_uptime_seconds: 0, interval_seconds: 0, hard_interval_seconds: 0,
                                    stop_seconds: 0, sustained_seconds: 0, readings: 1, soft: 0.4)
    rule = RestartRules::Policy.new(careless, faults: Random.new(2)) # a seed that loses readings before restarts
    WorkerCluster.new(ClusterTrace.new(:fast_leak, 1, 30_000), rule).run(3000)
    found = rule.broken.map { |text| text[/at \d+: ([^:]+)/, 1] }.uniq

    assert_includes found, "too young"
    assert_includes found, "too soon"
    assert_includes found, "readings are missing"
  end

  def test_fewer_kills_than_other_rules_with_no_more_restarts_and_no_more_lost_time
    table = RestartTable.new(LONG ? RestartRules::ALL.keys : ["memscope", *RIVALS, "none"])
    COMPARED.product(SEEDS) { |kind, seed| table.add(kind, seed, STEPS) }
    puts table if LONG
    own = table.totals["memscope"]

    RIVALS.each do |rival|
      theirs = table.totals[rival]

      assert_operator own[:oom_kills], LONG ? :< : :<=, theirs[:oom_kills], rival
      LOSSES.each { |loss| assert_operator own[loss], :<=, theirs[loss], "#{loss}, #{rival}" }
    end

    assert_operator own[:oom_kills], :<, table.totals["none"][:oom_kills]
  end
end
