# frozen_string_literal: true

# Compares restart rules on the same simulated clusters (test/support/worker_cluster.rb): OOM kills, restarts, and hours
# in which workers did not serve. Memscope::Policy against puma_worker_killer's sum of RSS, the same rule allowed as
# much more memory as its sum counts twice, its rolling restart alone, and GitLab's watchdog. A trace of each kind for
# each of SEEDS=1-3,1001-1008; STEPS=100000 of 5 seconds.

require_relative "../test/support/restart_table"

seeds = RestartTable.seeds(ENV.fetch("SEEDS", "1-3,1001-1008"))
steps = Integer(ENV.fetch("STEPS", "100000"))
table = RestartTable.new
ClusterTrace::KINDS.product(seeds) { |kind, seed| table.add(kind, seed, steps) }
puts "#{seeds.size} traces of each kind, #{(steps * WorkerCluster::STEP / 86_400.0).round(1)} days each"
puts table
