# frozen_string_literal: true

# For README.md: an application that has not loaded memscope. Each request subscribes, and nobody unsubscribes. It has
# served some requests when it boots.
require "rack"

class Order
  def initialize(number) = @lines = Array.new(10) { |line| "line #{line} of order #{number}" }
  def to_s = @lines.join("\n")
end

module OrderEvents
  SUBSCRIBERS = Hash.new { |hash, event| hash[event] = [] }

  def self.subscribe(event, &block) = SUBSCRIBERS[event] << block
end

class OrdersController
  def call(env)
    order = Order.new(env["PATH_INFO"])
    OrderEvents.subscribe(:paid) { |payment| puts "#{payment}: #{order}" }
    [200, { "content-type" => "text/plain" }, [order.to_s]]
  end
end

served = Rack::MockRequest.new(OrdersController.new)
5_000.times { |number| served.get("/orders/#{number}") }
run OrdersController.new
