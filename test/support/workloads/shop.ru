# frozen_string_literal: true

# For docs/leaks.md: /orders keeps each order that it shows, /products keeps none.
class Order
  RECENT = [] # rubocop:disable Style/MutableConstant -- the leak

  def self.find(number) = new(number).tap { |order| RECENT << order }
  def initialize(number) = @number = number
  def to_s = "order #{@number}"
end

run(lambda do |env|
  text = env["PATH_INFO"] == "/orders" ? Order.find(7).to_s : "products"
  [200, { "content-type" => "text/plain" }, [text]]
end)
