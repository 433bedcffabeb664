# frozen_string_literal: true

# Memscope.snapshot in a large fragmented heap: under jemalloc against the same mallctls in C, and in absolute time
# under both allocators.

unless ARGV.first == "measure"
  [nil, "libjemalloc.so.2"].each do |preload|
    load_path = $LOAD_PATH.grep(/memscope|\Alib|\A#{Regexp.escape(Dir.pwd)}/).map { |directory| "-I#{directory}" }
    system({ "LD_PRELOAD" => preload }, RbConfig.ruby, "-W0", *load_path, __FILE__, "measure")
  end
  exit
end

require "fiddle"
require_relative "floor/floor"
require "memscope"

# 16 threads make more than a GB of strings of mixed sizes, and keep one in fifty, which leaves the heap fragmented.
KEPT = Array.new(16) do |seed|
  Thread.new do
    random = Random.new(seed)
    strings = Array.new(80_000) { "x" * random.rand(24..1_600) }
    strings.select.with_index { |_, index| (index % 50).zero? }
  end
end.map(&:value)
GC.start

snapshot = lambda do |count|
  Floor.time do
    turn = 0
    while turn < count
      Memscope.snapshot
      turn += 1
    end
  end
end

allocator = Memscope.allocator.name
heap = format("under %s, RSS %.2f GB", allocator, Memscope.rss / 1e9)

if allocator == :jemalloc
  Floor.function("mallctls", "floor_mallctls_resolve", [], Fiddle::TYPE_VOID).call
  mallctls = Floor.function("mallctls", "floor_mallctls", [Fiddle::TYPE_INT], Fiddle::TYPE_LONG_LONG)
  result = Floor.compare(snapshot, mallctls, count: 20)
  Floor.say("Memscope.snapshot", result.ratio, "× the same mallctls in C, #{heap}", "≤ 1.3")
  Floor.say("Memscope.snapshot", result.subject_ns / 1e6, "ms #{heap}",
            format("≤ 1; the mallctls alone %.3f", result.floor_ns / 1e6))
else
  times = Array.new(301) { snapshot.call(20) / 20.0 }
  Floor.say("Memscope.snapshot", Floor.median(times) / 1e6, "ms #{heap}", "≤ 1")
end
