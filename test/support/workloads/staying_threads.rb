# frozen_string_literal: true

# Threads that have done something and stay. One that ends gives its caches back, and as the last of a jemalloc arena
# has it purged, both some time after Thread#join has returned: nothing can be counted on then.
module StayingThreads
  PATH = __FILE__

  # @yield [Integer] in each of them, its number
  # @return [Array] what each has returned, in the order in which they were done
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
