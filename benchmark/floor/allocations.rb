# frozen_string_literal: true

# Loops that do little but allocate small objects, strings, JSON or hashes. The first argument names the loop, the
# second is how many blocks of HELD_BYTES are held while it runs.

require "json"
require "memscope" if ENV["MEMSCOPE"]
require ENV["INSTEAD"] if ENV["INSTEAD"]
require_relative "answers"

ORDERS = Array.new(40) do |id|
  lines = Array.new(5) { |line| { sku: "A-#{id}-#{line}", amount: line, text: "a line of order #{id} " * line } }
  { id: id, name: "order #{id}", address: "#{id} High Street, Springfield", lines: lines }
end

LOOPS = {
  "objects" => -> { 1000.times { |number| ["x#{number}"] } },
  "strings" => lambda do
    lines = Array.new(200) { |index| "GET /orders/#{index}?#{'x' * (index % 100)} 200 #{index * 3} ms" }
    lines.join("\n").split("\n").map { |line| line.sub("GET", "POST") }
  end,
  "long strings" => lambda do
    lines = Array.new(200) { |index| ("x" * (20 + (index * 2))) << " " << index.to_s }
    lines.join("\n").split("\n").map { |line| line.sub(" ", ": ") }
  end,
  "JSON" => -> { JSON.parse(JSON.generate(ORDERS)) },
  "hashes" => lambda do
    rows = Array.new(15) { |size| Array.new(size * 4) { |key| ["key #{key}", key] }.to_h }
    rows.map { |row| row.merge("last" => 0).transform_values(&:to_s) }.group_by(&:size)
  end
}.freeze

work = LOOPS.fetch(ARGV.fetch(0))
answer(held: Integer(ARGV.fetch(1, "0"))) { work.call }
