# frozen_string_literal: true

module Memscope
  module MallocProfile
    # A malloc profile that another process requested: `memscope profile --pid`, or a page of Memscope::Web.
    #
    # @api private
    module Lease
      # A lease starts a new generation every TICK seconds (a long lease starts TICKS generations, evenly spaced), to
      # tell what was allocated before a major GC.
      TICK = 1.0
      TICKS = 60
      private_constant :TICK, :TICKS

      extend Profile::Leasing

      class << self
        # @return [Profile] the running profile, or else the last one
        # @raise [Unavailable] if no profile was started
        def snapshot = MallocProfile.snapshot

        # @return [Hash{Symbol => Object}] `session`: the number of the running profile, or else of the last one, 0 if
        #   there was none; `running` and `shared`: as in Leasing#state; `jemalloc`: whether jemalloc's profiler is
        #   ready
        def state = { session: MallocProfile.session, **super, jemalloc: Native.jemalloc_profiling == :on }

        private

        def profiler = MallocProfile

        def begin_session(...)
          @ends = [] # for each ended generation, how many major GCs had begun by then
          super
        end

        def collect
          mark
          super
        end

        def taken
          judged = judged_majors
          super.judged_up_to(@ends.count { |majors| majors < judged })
        end

        # Ends a generation. A major GC that begins later judges everything that was allocated in that generation.
        def mark
          @ends << GC.stat(:major_gc_count)
          MallocProfile.next_generation
        end

        # How many major GCs have finished. A GC that is still sweeping has not freed all garbage.
        def judged_majors
          over = GC.latest_gc_info(:state) == :none || GC.latest_gc_info(:major_by).nil?
          GC.stat(:major_gc_count) - (over ? 0 : 1)
        end

        def wait(token, seconds)
          tick = [TICK, seconds / TICKS].max
          ticks = (seconds / tick).floor
          ticks.times do
            sleep(tick)
            @lock.synchronize { mark if @token == token && held? }
          end
          sleep([seconds - (ticks * tick), 0].max) # in Floats, 60 sixtieths of 62.4 are more than 62.4
        end

        # The samples stay readable.
        def expired = MallocProfile.halt
      end
    end
  end
end
