# frozen_string_literal: true

# A process with many arenas: 40 threads that allocate, free most of it, and then sleep forever. Afterwards, only the
# reading itself allocates. Prints the allocator's own report, the reading at the same moment, and the nanoseconds that
# both took.
module ManyArenas
  THREADS = 40
  # No decay: one call in a thousand, by chance, returns pages that have been free for a while, which must not happen
  # between two numbers that are to be equal.
  JEMALLOC = { "MALLOC_CONF" => "narenas:18,dirty_decay_ms:-1" }.freeze

  module_function

  def build
    ready = Thread::Queue.new
    @threads = Array.new(THREADS) do |number|
      Thread.new do
        random = Random.new(number)
        kept = Array.new(1500) { "x" * random.rand(30..6000) }.each_slice(3).map(&:first)
        ready << kept.size
        sleep
        kept.clear
      end
    end
    THREADS.times { ready.pop }
    jemalloc = Memscope.allocator.name == :jemalloc
    if jemalloc
      free_pages
      Memscope.purge(:purge)
    end
    GC.start
    GC.disable
    free_pages if jemalloc
  end

  # 4 MiB of the main thread's arena.
  def free_pages
    Host.malloc_blocks(65_536, 64)
    Host.free_blocks
  end

  # Prints the last of three readings. The first two load code and fill caches, which allocates.
  def described
    3.times do
      before = nanoseconds
      Host.describe_malloc
      @read = yield
      @took = nanoseconds - before
    end
    puts JSON.generate([Host.description, @read.to_h, @took])
  end

  def nanoseconds = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
end
