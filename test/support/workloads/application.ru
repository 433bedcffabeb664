# frozen_string_literal: true

# An application for checks: it keeps an object, three objects or a block of malloc with each request, fills a cache to
# its bound, fills one more and more slowly, or keeps numbers, or nothing, or something until it has had no request for
# a while, or its requests fail. Loaded again, it starts anew.

require "memscope_test"

Kept = Class.new unless defined?(Kept)
kept = []
cache = {}
number = 0
buffer = []
last = 0
clock = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
sender = nil
put = lambda do
  sender ||= Thread.new { loop { sleep(0.5) && clock.call - last > 2 && buffer.clear } }
  last = clock.call
  buffer << Kept.new
end

answers = {
  "/nothing" => -> { "garbage " * 100 },
  "/object" => -> { kept << Kept.new },
  "/objects" => -> { 3.times { kept << Kept.new } },
  "/numbers" => -> { kept << number },
  "/block" => -> { Leaks.leak(64, 1, :here) },
  "/bounded" => -> { cache[number % 80] ||= Kept.new },
  # 20 a request at first, and a quarter less after each 20 requests.
  "/slowing" => -> { (20 * (0.75**(number / 20.0))).round.times { kept << Kept.new } },
  "/buffer" => put,
  "/buffer_and_object" => -> { [put.call, kept << Kept.new] },
  "/raise" => -> { raise IndexError, "no such order" },
  "/odd" => -> { raise Exception, "odd" }, # rubocop:disable Lint/RaiseException -- as an application can
  "/exit" => -> { exit },
  "/stop" => -> { Process.kill(:INT, Process.pid) && sleep },
  "/logging" => -> { puts "a log" }
}
statuses = { "/broken" => [500, "Internal\nerror"], "/missing" => [404, "not here"], "/moved" => [302, ""] }

class Body
  attr_reader :closed

  def initialize(text, closed)
    @text = text
    @closed = closed
  end

  def each = yield(@text)
  def close = @closed << true
end

closed = []
run(lambda do |env|
  path = env.fetch("PATH_INFO")
  status, text = statuses.fetch(path, [200, "fine"])
  headers = { "content-type" => "text/plain" }
  headers["location"] = "/login" if status == 302
  number += 1
  answers[path]&.call
  seen = env.values_at("HTTP_HOST", "rack.url_scheme", "HTTP_ACCEPT", "REMOTE_ADDR")
  text = [closed.size, *seen, ENV.fetch("RAILS_ENV")].join(" ") if path == "/seen"
  raise text if path == "/seen" && closed.size == 3

  [status, headers, Body.new(text, closed)]
end)
