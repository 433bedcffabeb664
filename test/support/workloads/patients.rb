# frozen_string_literal: true

require "memscope_test"
require_relative "staying_threads"

# Processes for the doctor, sick and healthy, of any size. Each method makes this process such a patient, and returns
# how many bytes are affected, according to its own count.
module Patients
  MEBIBYTE = 1_048_576
  BLOCK = 65_536
  KEPT = [] # rubocop:disable Style/MutableConstant -- what stays alive

  module_function

  # As many threads as glibc makes arenas for two processors, each with small blocks of which every other one is freed:
  # no page is free, and no other thread can use the free blocks.
  def glibc_arenas(mebibytes, threads: 16)
    StayingThreads.start(threads) { allocate(mebibytes * 2 / threads.fdiv(1)) }
    Host.free_blocks(keep: 2)
  end

  # Under jemalloc, one block in eight keeps each slab from being returned.
  def slab_slack(mebibytes)
    allocate(mebibytes * 8 / 7.0, sizes: [320, 640, 1_792])
    Host.free_blocks(keep: 8)
  end

  # Under glibc, one block in 256 keeps the heap from shrinking. The pages between are free.
  def trimmable(mebibytes)
    allocate(mebibytes, sizes: [640])
    Host.free_blocks(keep: 256)
  end

  # Under jemalloc, a forked child frees pages in the arenas of threads that do not exist in it, then runs the block.
  # Background threads do not run in the child either. In the parent, they would purge some of the freed pages. One call
  # in a thousand also purges, always a whole run of pages: one block in 16 is kept, so that no run exceeds a MiB.
  def dirty_after_fork(mebibytes, threads: 4, keep: 16)
    blocks = mebibytes * MEBIBYTE / BLOCK * keep / (keep - 1)
    StayingThreads.start(threads) { Host.malloc_blocks(BLOCK, blocks / threads) }
    in_fork { yield Host.free_blocks(count: blocks, keep: keep) }
  end

  # Objects of which one in fifty survives, all over the heap.
  def compactable(mebibytes)
    objects = Array.new(mebibytes * MEBIBYTE / 40) { Object.new }
    random = Random.new(5)
    index = -1
    KEPT << objects[index] while (index += random.rand(1..99)) < objects.size
    objects.clear
    GC.start
    mebibytes * MEBIBYTE
  end

  # Blocks that no Ruby object accounts for.
  def leak(mebibytes)
    allocate(mebibytes, sizes: [1_024])
  end

  # The same blocks, as a cache.
  def native_cache(mebibytes) = leak(mebibytes)

  # A cache of strings of mixed sizes that has been in use for a while.
  def ruby_cache(mebibytes)
    cache = Cache.new(mebibytes * MEBIBYTE / Cache::MEAN)
    cache.size.times { cache.replace_oldest }
    cache
  end

  # A Hash of constant size: each new entry replaces the oldest.
  class Cache
    SIZES = 1_000..15_000
    MEAN = SIZES.sum / SIZES.size

    attr_reader :size

    def initialize(size)
      @size = size
      @random = Random.new(7)
      @entries = {}
      size.times { |key| @entries[key] = text }
    end

    def replace_oldest
      @entries[@entries.first.first + @size] = text
      @entries.shift
    end

    def bytes = @entries.sum { |_, text| text.bytesize }

    private

    def text = "x" * @random.rand(SIZES)
  end

  def allocate(mebibytes, sizes: [320, 640, 1_008])
    Host.malloc_blocks(sizes, (mebibytes * MEBIBYTE / sizes.sum).floor)
    mebibytes * MEBIBYTE
  end

  # The child writes to this process's standard output.
  def in_fork
    $stdout.flush
    Process.wait(fork do
      yield
      $stdout.flush
      exit!(0)
    end)
  end
end
