# frozen_string_literal: true

# An application with memscope's pages beside its own: /hello; /garbage?64, which leaves 64 MiB free in malloc;
# /fragments?64, which keeps a part of them; /products?10000, which keeps 10,000 products; /graph?30, which makes a
# heap graph whose child takes 30 seconds; /week, which plants a history of a week; and /elsewhere, whose
# form goes to memscope on another origin.
require "memscope"

Memscope.configure { |c| c.authorize = ->(_request) { true } } if ENV["OPEN"]

KEPT = [] # rubocop:disable Style/MutableConstant -- what /garbage and /fragments keep

map("/memscope") { run Memscope::Web }

map("/hello") { run ->(_env) { [200, { "content-type" => "text/plain" }, ["hello"]] } }

map("/garbage") do
  run(lambda do |env|
    mebibytes = Integer(env["QUERY_STRING"])
    strings = Array.new(mebibytes * 1024) { "x" * 1000 }
    KEPT << strings.last # else glibc may return all of it by itself, as the top of its heap
    strings.clear
    GC.start
    [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
  end)
end

map("/fragments") do
  run(lambda do |env|
    random = Random.new(1)
    strings = Array.new(Integer(env["QUERY_STRING"]) * 1_500) { "x" * random.rand(100..1_300) }
    KEPT.concat(strings.select.with_index { |_string, index| (index % 2000) < 300 || (index % 40).zero? })
    strings.clear
    GC.start
    [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
  end)
end

# A module's cache, which nobody empties.
module Catalog
  Product = Struct.new(:name)
  @products = {}

  def self.fetch(number) = @products[number] ||= Product.new("product #{number} " * 8)
end

map("/products") do
  run(lambda do |env|
    Integer(env["QUERY_STRING"]).times { |number| Catalog.fetch(number) }
    [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
  end)
end

map("/graph") do
  run(lambda do |env|
    require "memscope_test"
    slow = Host.sized(1, Integer(env["QUERY_STRING"]) * 1_000_000_000)
    graph = Memscope.heap_graph(top: 1, deadline: 60)
    [200, { "content-type" => "text/plain" }, [slow && graph.reasons.fetch(:reachable_count, "found")]]
  end)
end

map("/week") do
  run(lambda do |_env|
    require_relative "../planted_history"
    planted = PlantedHistory.week
    Memscope::History.define_singleton_method(:read) { planted }
    [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
  end)
end

map("/elsewhere") do
  run(lambda do |env|
    page = <<~HTML
      <!doctype html><html lang="en"><title>elsewhere</title>
      <form method="post" action="#{env['QUERY_STRING']}"><input name="token" value="#{'t' * 43}">
      <input name="lever" value="gc"><button>Win a prize</button></form>
    HTML
    [200, { "content-type" => "text/html" }, [page]]
  end)
end
