# frozen_string_literal: true

# What a census takes against what Ruby has for parts of its answer: ObjectSpace.memsize_of_all, count_objects_size and
# count_objects together, of the same heap in the same run, in turns; by the thread's own time. SLOTS=5000000, ROUNDS=9.
# The claim is a ratio of at most a half for a heap of records. For one of many kinds of objects, most of whose time
# goes to asking each for its size, the ratio is only printed: there it is up to 0.6 before Ruby 4.0.

require "memscope"
require "memscope/census"
require "objspace"

SLOTS = Integer(ENV.fetch("SLOTS", "5000000"))
ROUNDS = Integer(ENV.fetch("ROUNDS", "9"))
LIMITS = { "records" => 0.5, "mixed" => Float::INFINITY }.freeze

Node = Struct.new(:left, :right)

HEAPS = {
  "records" => ->(index) { [index, "text #{index}"] },
  "mixed" => ->(index) { [Object.new, "y" * (index % 60), Node.new(index, nil), 1.0e300 * index, { key: index }] }
}.freeze

def thread_ms
  start = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
  yield
  (Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - start) * 1000
end

def median(values) = values.sort[values.size / 2]

def rounds
  Array.new(ROUNDS) do
    [thread_ms { Memscope.census }, thread_ms { ObjectSpace.memsize_of_all },
     thread_ms { ObjectSpace.count_objects_size }, thread_ms { ObjectSpace.count_objects }]
  end
end

failed = HEAPS.reject do |name, make|
  kept = []
  kept << make.call(kept.size) until kept.size % 1000 == 999 && GC.stat(:heap_live_slots) >= SLOTS
  GC.start
  census, memsize, sizes, counts = rounds.transpose.map { |times| median(times) }
  objects = Memscope.census.total_count
  ratio = census / (memsize + sizes + counts)
  puts "#{name}: #{objects} objects, census #{census.round(1)} ms (#{(census / objects * 1e6).round(1)} a million) " \
       "against #{[memsize, sizes, counts].map { |one| one.round(1) }.join(' + ')} ms: ratio #{ratio.round(2)}, " \
       "at most #{LIMITS.fetch(name)}"
  kept.clear
  GC.start
  ratio <= LIMITS.fetch(name)
end
exit failed.empty?
