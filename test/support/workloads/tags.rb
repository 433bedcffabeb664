# frozen_string_literal: true

# What memscope says of five endpoints under 16 threads, beside the truth: /leak keeps ENV["KEPT"] objects a request,
# /cache fills a cache of bounded size and then replaces its entries, the others make garbage only. ENV["SEED"] decides
# the order of the requests; which objects are sampled cannot be decided. Prints for the whole profile, and for the time
# after the cache was full, each row's numbers.

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

# Each thread serves its part of the requests; now and then, one of them collects garbage while others are serving.
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
Memscope::ObjectProfile.start(budget: BUDGETS.sample(random: random))
serve.call(random)
earlier = Memscope.tags
serve.call(random)
later = Memscope.tags
readings = { whole: later, later: later - earlier }
puts JSON.generate(readings.transform_values { |tags| tags.map { |row| row.to_h.except(:totals) } })
