# frozen_string_literal: true

# Objects that only a local variable of another thread holds, beside busy threads.

class Order; end # rubocop:disable Lint/EmptyClass

held = Queue.new
Thread.new do
  orders = Array.new(500) { Order.new }
  held << true
  sleep
  orders
end
held.pop
Integer(ARGV.first || 0).times { Thread.new { loop { Array.new(100) { "a" * 50 } } } }
$stdout.sync = true
puts "ready"
sleep
