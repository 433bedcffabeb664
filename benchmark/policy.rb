# frozen_string_literal: true

# Compares restart rules on the same simulated clusters (test/support/worker_cluster.rb): OOM kills, restarts, and hours
# in which workers did not serve. Memscope::Policy against puma_worker_killer (sum of RSS, rolling restart), the same
# with its limit raised by what that sum counts more than once, its rolling restart alone, and GitLab's watchdog. One
# trace of each kind for each of SEEDS=1-3,1001-1008; STEPS=100000 of 5 seconds.

require_relative "../test/support/restart_table"

seeds = RestartTable.seeds(ENV.fetch("SEEDS", "1-3,1001-1008"))
steps = Integer(ENV.fetch("STEPS", "100000"))
table = RestartTable.new
ClusterTrace::KINDS.product(seeds) { |kind, seed| table.add(kind, seed, steps) }
puts "#{seeds.size} traces of each kind, #{(steps * WorkerCluster::STEP / 86_400.0).round(1)} days each"
puts table
