# frozen_string_literal: true

# Imports orders, and leaks each order's note and a compressor for each batch. For the profiler's screen in
# docs/tour.md.

require "json"
require "memscope"
require "zlib"

class Import
  BATCH = 50

  def initialize
    @notes = {}
    @batches = []
  end

  def run(orders)
    orders.times do |id|
      order = JSON.parse(order(id))
      Memscope.tag("notes") { remember(order) }
      Memscope.tag("batches") { open_batch } if (id % BATCH).zero?
      @batches.last.deflate(order["lines"].join)
    end
  end

  private

  def order(id)
    JSON.generate(id: id, note: "n" * (500 + (id % 1_000)), lines: Array.new(20) { |line| "#{id}-#{line}" })
  end

  def remember(order)
    @notes[order["id"]] = order["note"] * 2
  end

  def open_batch
    @batches << Zlib::Deflate.new
  end
end

IMPORT = Import.new
IMPORT.run(Integer(ARGV.fetch(0, 20_000)))
