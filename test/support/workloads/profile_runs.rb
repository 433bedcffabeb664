# frozen_string_literal: true

# Takes ENV["RUNS"] profiles of the same leak, each with samples of its own. Prints [estimate, stated error, samples] of
# each, and how much was leaked. Leaks blocks of ENV["BLOCK"] bytes at ENV["RATE"], enough for ENV["SAMPLES"] samples.

require "json"
require "memscope_test"

module ProfileRuns
  NATIVE = Memscope.const_get(:Native)
  RATE = Integer(ENV.fetch("RATE"))
  BLOCK = Integer(ENV.fetch("BLOCK"))
  COUNT = (Integer(ENV.fetch("SAMPLES")) / (1 - Math.exp(-BLOCK.fdiv(RATE)))).ceil

  module_function

  def leaked(body)
    names = body[:frames].each_index.select { |index| body[:frames][index][:name] == "Leaks.leak" }
    body[:stacks].select { |stack| stack[:frames].intersect?(names) }
  end

  def run
    Memscope::MallocProfile.start(rate: RATE, backend: ENV.fetch("BACKEND").to_sym)
    Leaks.leak(BLOCK, COUNT, :here)
    Leaks.churn(COUNT / 8, :here)
    stacks = leaked(NATIVE.malloc_profile(nil))
    [stacks.sum { |stack| stack[:live_bytes] }, Math.sqrt(stacks.sum { |stack| stack[:error_bytes]**2 }),
     stacks.sum { |stack| stack[:samples] }]
  ensure
    NATIVE.stop_profile
    Leaks.free(COUNT, :here)
  end
end

ProfileRuns.run # past the interval that jemalloc drew at the previous rate
puts JSON.generate(truth: ProfileRuns::BLOCK * ProfileRuns::COUNT,
                   runs: Array.new(Integer(ENV.fetch("RUNS"))) { ProfileRuns.run })
