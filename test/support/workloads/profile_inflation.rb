# frozen_string_literal: true

# Prints the bytes that a malloc profile adds to jemalloc's active bytes, by memscope's and by jemalloc's count, then
# the ledger's reason for malloc, and the profile's coverage. BLOCK is the size of the allocated blocks.
require "json"
require "fiddle"
require "memscope"

block = Integer(ENV.fetch("BLOCK"))
malloc = Fiddle::Function.new(Fiddle::Handle::DEFAULT["malloc"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOIDP)
grown = lambda do
  before = Memscope.snapshot.jemalloc.fetch(:active_bytes)
  (40_000_000 / block).times { malloc.call(block) }
  Memscope.snapshot.jemalloc.fetch(:active_bytes) - before
end

GC.disable
grown.call # allocates what the loop itself needs
without = grown.call
Memscope::MallocProfile.start(rate: 1 << 15, backend: :jemalloc)
truth = grown.call - without
said = Memscope.ledger.reasons[:malloc]
profile = Memscope::MallocProfile.stop
puts JSON.generate([profile.overhead.inflated_bytes, truth, said, profile.coverage])
