# frozen_string_literal: true

# How often a verdict reports a leak where there is none, and how often it finds real ones, compared with other
# detectors: socketry's ratchet (each 10 MB above the last maximum is a strike, 20 are a leak), Prometheus's
# predict_linear over 4 hours with 70 % of the limit in use, Mann-Kendall with p < 0.01. All judge the same traces with
# known truth (test/engine/trend/traces.h) at every epoch. SEEDS=20 traces by each generator, HOURS=168 long.

require_relative "../test/support/compiled"

seeds = Integer(ENV.fetch("SEEDS", "20"))
hours = ENV.fetch("HOURS", "168")
rooms = %w[trend base].flat_map { |room| Dir.glob("#{room}/*.c", base: Compiled::ENGINE) }
program = Compiled.program("engine/trend/verdict_battery.c", engine: rooms, arguments: %w[-O2 -pthread -lm])
arguments = ["51", (50 + seeds).to_s, hours]
puts Compiled.run(program, "--peers", *arguments)
puts Compiled.run(program, *arguments).lines.last(19)
