# frozen_string_literal: true

# The CPU time of a census against that of Ruby's own methods for parts of its answer: ObjectSpace.memsize_of_all,
# count_objects_size and count_objects together, for the same heap, in turns in one run. SLOTS=5000000, ROUNDS=9. The
# claim is a ratio of at most 0.5, both for a heap of records and for one in which neighbouring objects differ in class.

require "memscope"
require "memscope/heap/census"
require "objspace"

SLOTS = Integer(ENV.fetch("SLOTS", "5000000"))
ROUNDS = Integer(ENV.fetch("ROUNDS", "9"))
LIMIT = 0.5

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
       "at most #{LIMIT}"
  kept.clear
  GC.start
  ratio <= LIMIT
end
exit failed.empty?
