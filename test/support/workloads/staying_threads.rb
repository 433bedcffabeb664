# frozen_string_literal: true

# Threads that do something and then stay alive. A thread that ends flushes its caches and, as the last thread of a
# jemalloc arena, has the arena purged. Both happen some time after Thread#join has returned, so amounts would be
# uncertain.
module StayingThreads
  PATH = __FILE__

  # @yield [Integer] in each thread, its number
  # @return [Array] the results of the blocks, in the order in which they finished
  def self.start(count)
    done = Queue.new
    count.times do |number|
      Thread.new do
        done << yield(number)
        sleep
      end
    end
    Array.new(count) { done.pop }
  end
end
