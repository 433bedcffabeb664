# frozen_string_literal: true

# measure.rb OUTPUT CONFIG.RU [PATH REQUESTS]: runs in the application's bundle, and writes JSON. With a PATH: the lines
# that retain memory after the first requests, a check of REQUESTS, and the lines that allocate, in five rounds. Without
# one: the lines that retain memory once the application is loaded.

require "json"
require "memscope"

output, rackup, path, requests = ARGV
# Requests in a measurement.
ROUND = 20

def lines(&)
  measurement = Memscope.measure(&)
  measurement.lines&.map(&:to_h) or raise Memscope::Unavailable.new(:objects_uncounted, measurement.reasons[:lines])
end

def about_requests(application, number)
  Rack::MockRequest.env_for("/") # loads what only requests of a check need
  allocator = Memscope.allocator
  { round: ROUND, retained: lines { application.call(ROUND) },
    check: Memscope::Check.application(application, requests: number).to_h,
    rounds: Array.new(Memscope::Check::RUNS) { lines { application.call(ROUND) } },
    allocator: "#{allocator.name} #{allocator.short_version} serves malloc (#{'not ' unless allocator.proved?}proved)" }
end

begin
  lines { nil } # loads what a measurement needs
  body = if path
           about_requests(Memscope::Check::Application.new(rackup, path), Integer(requests))
         else
           { boot: lines { Memscope::Check::Application.new(rackup, "/") } }
         end
rescue Memscope::Check::Failed, Memscope::Unavailable => e
  body = { failed: e.message }
end
File.write(output, JSON.generate(body))
