# frozen_string_literal: true

require "minitest/mock"

# Tags with counts and samples that are made by hand.
module PlantedTags
  WINDOWS = { windows: 100, allocations: 1_000_000, windows_share: 0.5, equal_windows: 100.0 }.freeze
  TAG = { name: "a", runs: 1000, running: 0, malloc_allocated_bytes: nil, malloc_runs: 1000.0, profiled_runs: 1000.0,
          counted: 500_000, allocated_objects: 1_000_000.0, live_samples: 30, live_objects: 3000, live_bytes: 120_000,
          judged_runs: 800.0 }.freeze

  # Of one sample of 100 objects in each of so many windows.
  def tag(samples, **changes)
    { **TAG, samples: samples, shares: Array.new(samples) { |window| [window + 1, 10_000, 100, 1] }, **changes }
  end

  def tags(*bodies)
    body = { tags: bodies, profiled: WINDOWS, judged: WINDOWS, reasons: {}, cost: Memscope::Cost.of(:T2) }
    Memscope.const_get(:Native).stub(:tags, body) { Memscope.tags }
  end
end
