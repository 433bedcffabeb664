# frozen_string_literal: true

# Holds small blocks, which a profile with the backend PROFILE samples: all are allocated with one stack, or each with a
# stack of its own. Prints by how many bytes the RSS of this process has grown meanwhile, and how many samples are live.

require "memscope"

BLOCKS = 400_000
DEPTH = 19 # 2^19 ways

def left(way, depth) = descend(way, depth)
def right(way, depth) = descend(way, depth)

def descend(way, depth)
  return "x" * 200 if depth.zero?

  way.odd? ? right(way >> 1, depth - 1) : left(way >> 1, depth - 1)
end

def block(index) = descend(ARGV.fetch(0) == "each" ? index : 0, DEPTH)

profile = Memscope::MallocProfile
profile.start(backend: ENV["PROFILE"].to_sym, rate: 1 << 12) if ENV["PROFILE"]
kept = Array.new(BLOCKS)
1000.times { |index| block(index) }
GC.start
before = Memscope.rss
BLOCKS.times { |index| kept[index] = block(index) }
grown = Memscope.rss - before
puts "#{grown} #{ENV['PROFILE'] ? profile.snapshot.samples : 0}"
