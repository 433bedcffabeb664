# frozen_string_literal: true

# Compares memscope's numbers for five endpoints under 16 threads with the truth: /leak keeps ENV["KEPT"] objects per
# request, /cache fills a cache of bounded size and then replaces its entries, the others make only garbage. ENV["SEED"]
# decides the order of the requests, but not which objects are sampled. Prints the objects retained per 1,000 runs of
# each tag, and the growth of its live objects after the cache was full, with one standard error and the truth.

require "json"
require "memscope"

THREADS = 16
REQUESTS = Integer(ENV.fetch("REQUESTS", "6000"))
COLLECTIONS = 12
KEPT = Integer(ENV.fetch("KEPT"))
BUDGETS = [1, 0.2, 0.05].freeze

Kept = Class.new

leaked = []
cache = {}
cached = 0
page = ->(size) { Array.new(size) { |number| "line #{number}" }.join.size }
ENDPOINTS = {
  "/leak" => -> { page.call(40) && KEPT.times { leaked << Kept.new } },
  "/cache" => -> { page.call(40) && cache[(cached += 1) % 100] = Kept.new },
  "/small" => -> { page.call(10) }, "/medium" => -> { page.call(50) }, "/large" => -> { page.call(200) }
}.freeze

# Each thread serves its part of the requests. Now and then, one of them collects garbage while others are serving.
serve = lambda do |random|
  orders = Array.new(REQUESTS) { ENDPOINTS.keys.sample(random: random) }.each_slice(REQUESTS / THREADS).to_a
  every = REQUESTS / COLLECTIONS
  done = 0
  orders.map do |order|
    Thread.new do
      order.each do |name|
        Memscope.tag(name) { ENDPOINTS.fetch(name).call && Thread.pass }
        GC.start if ((done += 1) % every).zero?
      end
    end
  end.each(&:join)
end

random = Random.new(Integer(ENV.fetch("SEED")))
settled = -> { 2.times { GC.start } && Memscope::ObjectProfile.snapshot }
Memscope::ObjectProfile.start(budget: BUDGETS.sample(random: random))
serve.call(random)
earlier = settled.call
before = leaked.size
serve.call(random)
whole = Memscope.tags.map do |row|
  truth = row.name == "/leak" ? 1000 * KEPT : 0
  [row.name, truth, row.retained_objects, row.retained_objects_error] unless row.name == "/cache" # it filled up
end
grown = settled.call.growth_since(earlier).by(:tag).filter_map do |entry|
  truth = entry.name == "/leak" ? leaked.size - before : 0
  number = entry.live_objects if entry.estimated?
  [entry.name, truth, number, entry.error_objects] if ENDPOINTS.key?(entry.name)
end
puts JSON.generate(whole: whole.compact, later: grown)
