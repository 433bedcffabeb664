# frozen_string_literal: true

# A Ruby heap of a known size with holes: fills it with objects of one kind, drops most of them, and prints the
# prediction of RubyHeap::CompactionForecast and the result of Purge::Compaction, as JSON. KIND, KEEP and MEGABYTES come
# from the environment.

require "json"
require "memscope/action/purge/compaction"
require "stringio"

RANDOM = Random.new(42)
FINALIZER = proc {}
BASE_SLOT = 40

class Small
  def initialize(value)
    @value = value
  end
end

KINDS = {
  "objects" => ->(index) { Small.new(index) },
  "procs" => ->(index) { (index % 10).zero? ? proc { index } : Small.new(index) },
  "held by an extension" => ->(index) { (index % 50).zero? ? StringIO.new("text #{index}") : Small.new(index) },
  "finalizers" => lambda { |index|
    Small.new(index).tap { |object| ObjectSpace.define_finalizer(object, FINALIZER) if (index % 500).zero? }
  },
  "symbols" => ->(index) { (index % 20).zero? ? :"symbol #{index}" : Small.new(index) },
  "grown arrays" => ->(index) { (index % 30).times.each_with_object([]) { |item, array| array << item } },
  "slot sizes" => lambda { |index|
    case index % 5
    when 0 then Small.new(index)
    when 1 then "x" * (RANDOM.rand(20) + 1)
    when 2 then [index, index, index]
    when 3 then "y" * RANDOM.rand(200)
    else { index => index }
    end
  }
}.freeze

# Keeps some of the objects: "all", "every 10", "random 5", or "every 10, pinned 100", in which every hundredth object
# that is kept is also a key of a Hash that compares by identity.
def keep(objects, pinned)
  how, count, pin = ENV.fetch("KEEP").scan(/[a-z]+|\d+/).reject { |word| word == "pinned" }
  kept =
    case how
    when "all" then objects
    when "every" then every(Integer(count), objects)
    when "random" then objects.select { RANDOM.rand(Integer(count)).zero? }
    end
  every(Integer(pin), kept).each { |object| pinned[object] = true } if pin
  kept
end

def every(count, objects) = (0...objects.size).step(count).map { |index| objects[index] }

def resident
  ledger = Memscope.ledger
  [ledger[:ruby_heap].bytes, ledger.rss_bytes]
end

def fragment(kind, bytes)
  count = bytes / BASE_SLOT / (["slot sizes", "grown arrays"].include?(kind) ? 3 : 1)
  pinned = {}.compare_by_identity
  [keep(Array.new(count, &KINDS.fetch(kind)), pinned), pinned]
end

held = fragment(ENV.fetch("KIND"), Integer(ENV.fetch("MEGABYTES")) << 20)
Memscope.ruby_heap(collect: true)
resident
heap = Memscope.ruby_heap(collect: true)
row, rss = resident
passes = Memscope::Purge::Compaction.run
row_after, rss_after = resident

forecast = Memscope::RubyHeap::CompactionForecast.new(heap)
least, most = forecast.range&.minmax
puts JSON.generate(forecast: { min_bytes: least, max_bytes: most, reason: forecast.reason },
                   heap: heap.to_h, bytes: heap.bytes,
                   compactable: heap.compactable_bytes + heap.empty_bytes, passes: passes,
                   row: row - row_after, rss: rss - rss_after, held: held.sum(&:size))
