# frozen_string_literal: true

# Memscope.ledger in processes of 1 GB in three shapes, under both allocators: its time against one read of
# /proc/self/smaps in the same process, the time under the GVL against 1 ms + 0.25 µs for each heap page, and how long
# a thread that maps and unmaps memory is held up meanwhile. SCALE=0.1 makes the processes a tenth as large.

SHAPES = { "malloc" => "malloc 90 %", "objects" => "16 M objects, the Ruby heap 60 %",
           "arenas" => "16 threads, 16 arenas" }.freeze
SCALE = Float(ENV.fetch("SCALE", "1"))

unless SHAPES.key?(ARGV.first)
  load_path = $LOAD_PATH.grep(/memscope|\Alib|\A#{Regexp.escape(Dir.pwd)}/).map { |directory| "-I#{directory}" }
  SHAPES.each_key do |shape|
    [nil, "libjemalloc.so.2"].each do |preload|
      # By default, both allocators make fewer arenas if there are few processors.
      arenas = shape == "arenas" ? { "MALLOC_ARENA_MAX" => "17", "MALLOC_CONF" => "narenas:16" } : {}
      system({ "LD_PRELOAD" => preload, **arenas }, RbConfig.ruby, "-W0", *load_path, __FILE__, shape, exception: true)
    end
  end
  exit
end

require "fiddle"
require_relative "floor/floor"
require "memscope"

# Strings that are too long to be embedded in a slot on any Ruby.
def strings(bytes, random)
  Array.new((bytes * SCALE / 1_150).to_i) { "x" * random.rand(700..1_600) }
end

def objects(count) = Array.new((count * SCALE).to_i) { Object.new }

KEPT = # what makes up the process
  case ARGV.first
  when "malloc" then [objects(1_500_000), strings(850_000_000, Random.new(1))]
  when "objects" then [objects(16_000_000), strings(140_000_000, Random.new(1))]
  when "arenas"
    filled = Queue.new
    threads = Array.new(16) do |seed|
      Thread.new do
        kept = strings(58_000_000, Random.new(seed))
        filled << kept.size
        sleep
        kept
      end
    end
    threads.each { filled.pop }
  end

# A GC that happens to run during a reading is not part of the reading's cost.
GC.start
GC.disable
3.times { Memscope.ledger }

def percent(part, whole) = "#{(100.0 * part / whole).round} %"

ledger = Memscope.ledger
pages = ledger[:ruby_heap].detail[:pages]
puts format("%<shape>s, under %<allocator>s: RSS %<rss>.2f GB, malloc %<malloc>s, Ruby heap %<heap>s",
            shape: SHAPES[ARGV.first], allocator: ledger.allocator.name, rss: ledger.rss_bytes / 1e9,
            malloc: percent(ledger[:malloc].bytes, ledger.rss_bytes),
            heap: percent(ledger[:ruby_heap].bytes, ledger.rss_bytes))

smaps = Floor.function("smaps", "floor_smaps", [Fiddle::TYPE_INT], Fiddle::TYPE_LONG_LONG)
read_ledger = ->(count) { Floor.time { count.times { Memscope.ledger } } }
read_smaps = ->(count) { smaps.call(count) }

result = Floor.compare(read_ledger, read_smaps, count: 1, rounds: 31)
Floor.say("  Memscope.ledger", result.ratio, "× one read of smaps", "≤ 0.8")
Floor.say("  Memscope.ledger", result.subject_ns / 1e6, "ms", format("0.8 × %.2f ms", result.floor_ns / 1e6))

gvl_us = Floor.median(Array.new(31) { Memscope.ledger.cost.gvl_us })
budget = 1_000 + (0.25 * pages)
Floor.say("  under the GVL", gvl_us / budget, "× 1 ms + 0.25 µs a heap page", "≤ 1")
Floor.say("  under the GVL", gvl_us / 1e3, "ms", format("%<ms>.2f ms, %<pages>d pages", ms: budget / 1e3, pages: pages))

# For each round, the longest wait of the mapping thread while `reading` ran, in milliseconds.
longest = Floor.function("stall", "floor_stall_longest", [], Fiddle::TYPE_LONG_LONG)
stalls = lambda do |reading|
  Array.new(31) do
    longest.call
    reading.call(1)
    longest.call / 1e6
  end
end

Floor.function("stall", "floor_stall_start", [], Fiddle::TYPE_INT).call
idle = ->(_count) { sleep(result.subject_ns / 1e9) }
{ "a ledger" => read_ledger, "a read of smaps" => read_smaps, "neither" => idle }.each do |what, reading|
  waits = stalls.call(reading)
  puts format("  longest stall of a thread that maps and unmaps during %<what>s: median %<median>.2f ms, " \
              "maximum %<maximum>.2f ms", what: what, median: Floor.median(waits), maximum: waits.max)
end
Floor.function("stall", "floor_stall_stop", [], Fiddle::TYPE_VOID).call
