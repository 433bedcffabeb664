# frozen_string_literal: true

require "securerandom"
require_relative "../forks"
require_relative "../malloc_profile"

module Memscope
  module MallocProfile
    # A profile that another process requested: `memscope profile --pid`, or a page of Memscope::Web. The requester may
    # die before the profile is over, so the profile ends automatically.
    #
    # @api private
    module Lease
      # The allowed duration, in seconds.
      SECONDS = (0.001..86_400)
      # A lease starts a new generation every TICK seconds (a long one starts TICKS of them, evenly spaced), to tell
      # what was allocated before a major GC.
      TICK = 1.0
      TICKS = 60
      private_constant :TICK, :TICKS
      # Seconds that the profile continues beyond its duration, so that the requester has time to stop it.
      GRACE = 10

      @lock = Mutex.new

      class << self
        # @param seconds [Numeric]
        # @param shared [Boolean] whether stop_shared may stop it without the token: any of several processes may serve
        #   the page that stops it
        # @return [String] the token that stops it
        # @raise [ArgumentError] for an invalid duration, rate or backend
        # @raise [Unavailable] as MallocProfile.start
        def start(seconds:, rate: RATE, backend: :auto, shared: false)
          unless seconds.is_a?(Numeric) && seconds.real? && SECONDS.cover?(seconds)
            raise ArgumentError, "seconds: given #{Field.excerpt(seconds)}, allowed: a number of seconds above 0, " \
                                 "up to #{SECONDS.end}"
          end

          @lock.synchronize do
            # Interrupts are deferred until the thread that ends the profile exists.
            Thread.handle_interrupt(Object => :never) do
              @session = MallocProfile.start_session(rate: rate, backend: backend)
              @hooked ||= Forks.listen(child: -> { forked }) && true
              @shared = shared
              @ends = [] # for each ended generation, how many major GCs had begun by then
              @token = SecureRandom.hex(8)
              watch(@token, seconds)
              @token
            end
          end
        end

        # @param token [String] from start
        # @param gc [Boolean] collect garbage first
        # @return [Profile]
        # @raise [Unavailable] if the profile of this token has already ended
        def stop(token, gc: false)
          @lock.synchronize do
            unless token && token == @token && held?
              raise Unavailable, "this malloc profile has ended already, or another requester stopped it"
            end

            finish(gc: gc)
          end
        end

        # Stops a shared profile on behalf of any process of the cluster.
        #
        # @return [Profile]
        # @raise [Unavailable] unless one is running that was started as shared
        def stop_shared
          @lock.synchronize do
            raise Unavailable, "no malloc profile is running here" unless MallocProfile.running?
            unless shared?
              raise Unavailable, "the running malloc profile was not started on a page: only its starter can stop it"
            end

            finish
          end
        end

        # @return [Boolean] whether the running profile is a lease
        def held? = !@token.nil? && MallocProfile.running? && Native.profile_session == @session

        # @return [Boolean] whether it was started as shared
        def shared? = @shared == true && held?

        # @return [Hash{Symbol => Object}] session: the number of the running profile, or else of the last one, 0 if
        #   there was none; running; shared; jemalloc: whether jemalloc's profiler is ready
        def state
          { session: Native.profile_session, running: MallocProfile.running?, shared: shared?,
            jemalloc: Native.jemalloc_profiling == :on }
        end

        private

        # A forked child continues its parent's profile, but lacks the thread that would end it: ends it here.
        def forked
          held = held?
          @token = nil
          @lock = Mutex.new
          Native.stop_profile if held
        end

        # The second collection frees what the first has left to finalizers.
        def finish(gc: false)
          @token = nil
          if gc
            mark
            2.times { GC.start }
          end
          judged = judged_majors
          MallocProfile.stop.judged_up_to(@ends.count { |majors| majors < judged })
        end

        # Ends a generation. A major GC that begins later judges everything that was allocated in that generation.
        def mark
          @ends << GC.stat(:major_gc_count)
          MallocProfile.next_generation
        end

        # How many major GCs have finished. One that is still sweeping has not freed all garbage.
        def judged_majors
          over = GC.latest_gc_info(:state) == :none || GC.latest_gc_info(:major_by).nil?
          GC.stat(:major_gc_count) - (over ? 0 : 1)
        end

        def watch(token, seconds)
          # The thread inherits the interrupt mask of start, under which it could not be killed.
          Forks.background("memscope profile") do
            Thread.handle_interrupt(Object => :immediate) { expire(token, seconds) }
          end
        end

        def expire(token, seconds)
          tick = [TICK, seconds / TICKS].max
          ticks = (seconds / tick).floor
          ticks.times do
            sleep(tick)
            @lock.synchronize { mark if @token == token && held? }
          end
          sleep(seconds - (ticks * tick) + GRACE)
          @lock.synchronize do
            next unless @token == token

            Native.stop_profile if held?
            @token = nil
          end
        end
      end
    end
  end
end
