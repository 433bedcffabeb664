# frozen_string_literal: true

# Five endpoints, one of which keeps six objects a request. /collect, which has no tag, collects garbage.

require "memscope"

KEPT = [] # rubocop:disable Style/MutableConstant
PAGE = ->(size) { Array.new(size) { |number| "line #{number}" }.join("\n") }
ENDPOINTS = {
  "/keep" => lambda do
    6.times { KEPT << Object.new }
    PAGE.call(20)
  end,
  "/list" => -> { PAGE.call(100) }, "/show" => -> { PAGE.call(20) },
  "/cache" => -> { Thread.current[:page] = PAGE.call(50) },
  "/slow" => -> { PAGE.call(10).tap { sleep 0.002 } },
  "/collect" => -> { GC.start.to_s }
}.freeze

Memscope::ObjectProfile.start(budget: 1)
use(Memscope::RackTags) { |env| env["PATH_INFO"] unless env["PATH_INFO"] == "/collect" }
run ->(env) { [200, { "content-type" => "text/plain" }, [ENDPOINTS.fetch(env["PATH_INFO"]).call]] }
