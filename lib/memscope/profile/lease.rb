# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # A profile that another process requested: `memscope profile --pid`, or a page of Memscope::Web. The requester may
    # die before the profile is over, so the profile ends automatically. Each profiler has one lease.
    # @api private
    class Lease
      # The allowed duration, in seconds.
      SECONDS = (0.001..86_400)
      # Seconds that the profile continues beyond its duration, so that the requester has time to stop it.
      GRACE_SECONDS = 10
      # A lease that judges starts a new generation every TICK seconds (a long one TICKS generations, evenly spaced), so
      # that it is known which allocations came before a major GC.
      TICK = 1.0
      TICKS = 60

      # `judge` separates memory that survived a major GC from possible garbage. `keep` keeps a stopped profile that a
      # page started, since the profiler cannot read it again. The block runs whenever another process starts or reads
      # the profile.
      def initialize(profiler, judge: false, keep: false, &watch)
        @profiler = profiler
        @judge = judge
        @keep = keep
        @watch = watch
        @lock = Mutex.new
      end

      # Does not wait: the requester waits in its own process. With `shared`, stop_shared may stop it without the
      # token: any of several processes may serve the page that stops it.
      #
      # @return [String] the token that stops it
      # @raise [ArgumentError, Unavailable] as the profiler's `start`
      def start(seconds: nil, shared: false, **options)
        Field.choice(:shared, shared, [true, false])
        Field.seconds(:seconds, seconds, SECONDS, "a number of seconds above 0, up to #{SECONDS.end}")
        # Interrupts are deferred until the thread that ends the profile exists.
        @lock.synchronize { Thread.handle_interrupt(Object => :never) { begin_lease(seconds, shared, options) } }
      end

      # @raise [Unavailable] if the profile of this token has already ended
      def stop(token: nil, gc: false)
        Field.choice(:gc, gc, [true, false])
        @lock.synchronize do
          held? && token == @token ? finish(gc: gc) : raise(Unavailable.new(:profile_ended, @profiler.noun))
        end
      end

      # Stops a profile that was started as shared, for any process of the cluster. Returns the state only: `snapshot`
      # still reads the stopped profile.
      def stop_shared
        @lock.synchronize do
          raise Unavailable.new(:profile_not_running, @profiler.noun, @profiler.name) unless @profiler.running?
          raise Unavailable.new(:profile_not_shared, @profiler.noun) unless shared?

          finish
        end
        state
      end

      # The running profile, whoever started it, or else the last one, as far as it can be read.
      def snapshot
        return Runtime.current.kept(kept_as).first if last? && !@profiler.running?

        @profiler.snapshot.tap { @watch&.call }
      end

      # `session` is the number of the profile that `snapshot` reads, 0 if there is none. `shared` is whether
      # stop_shared can stop the running one. `jemalloc` is whether jemalloc's profiler is ready.
      def state
        running = @profiler.running?
        { session: running || last? || !@keep ? @profiler.session : 0, running: running, shared: shared?,
          jemalloc: Native.jemalloc_profiling == :on }
      end

      private

      # True if the running profile is a lease.
      def held? = !@token.nil? && @profiler.running? && @profiler.session == @session

      def shared? = @shared == true && held?

      def kept_as = @profiler.name.to_sym

      # True if a stopped profile is kept, for pages of any worker.
      def last? = Runtime.current.readings.key?(kept_as)

      def begin_lease(seconds, shared, options)
        @session = @profiler.start_session(**options)
        @hooked ||= Forks.listen(child: -> { forked }) && true
        @ends = [] # for each ended generation, how many major GCs had begun by then
        @shared = shared
        @token = Random.urandom(8).unpack1("H*")
        @watcher&.kill # of an earlier profile, which is over: it may sleep on for a day
        @watcher = Forks.background("memscope profile") { expire(@token, seconds) }
        @watch&.call
        @token
      rescue ThreadError => e # no thread would end the profile
        @token = nil
        @profiler.halt if @profiler.session == @session
        raise Unavailable.new(:profile_unwatched, @profiler.noun, e.message)
      end

      # A forked child continues its parent's profile, but lacks the thread that would end it: the profile ends here.
      def forked
        @profiler.halt if held?
        @token = nil
        @lock = Mutex.new
      end

      # The second collection frees the objects that the first left to finalizers.
      def finish(gc: false)
        @token = nil
        mark if gc && @judge
        2.times { GC.start } if gc
        # How many major GCs have finished. A GC that is still sweeping has not freed all garbage.
        over = GC.latest_gc_info(:state) == :none || GC.latest_gc_info(:major_by).nil?
        judged = GC.stat(:major_gc_count) - (over ? 0 : 1)
        profile = @profiler.stop
        profile = profile.judged_up_to(@ends.count { |majors| majors < judged }) if @judge
        Runtime.current.keep(kept_as, profile) if @keep && @shared
        profile
      end

      # Ends a generation. A major GC that begins later judges everything that was allocated in that generation.
      def mark
        @ends << GC.stat(:major_gc_count)
        @profiler.next_generation
      end

      def expire(token, seconds)
        left = seconds + GRACE_SECONDS
        tick = @judge ? [TICK, seconds / TICKS].max : left
        while left.positive?
          sleep([tick, left].min)
          left -= tick
          step = left.positive? ? :mark : :finish
          @lock.synchronize { send(step) if @token == token && held? }
        end
      end
    end
  end
end
