# frozen_string_literal: true

require_relative "../forks"

module Memscope
  class Profile < Reading
    # A profile that another process requested. The requester may die before the profile is over, so the profile ends
    # automatically. Each profiler has a module that is extended with this one.
    #
    # @api private
    module Leasing
      # The allowed duration, in seconds.
      SECONDS = (0.001..86_400)
      # Seconds that the profile continues beyond its duration, so that the requester has time to stop it.
      GRACE = 10

      def self.extended(lease) = lease.instance_variable_set(:@lock, Mutex.new)

      # @param seconds [Numeric]
      # @param shared [Boolean] whether stop_shared may stop it without the token: any of several processes may serve
      #   the page that stops it
      # @param options [Hash] those of the profiler's `start`
      # @return [String] the token that stops it
      # @raise [ArgumentError] for an invalid duration or option
      # @raise [Unavailable] as the profiler's `start`
      def start(seconds:, shared: false, **options)
        Field.seconds("seconds", seconds, SECONDS, "a number of seconds above 0, up to #{SECONDS.end}")
        @lock.synchronize do
          # Interrupts are deferred until the thread that ends the profile exists.
          Thread.handle_interrupt(Object => :never) do
            begin_session(**options)
            @hooked ||= Forks.listen(child: -> { forked }) && true
            @shared = shared
            @token = Random.urandom(8).unpack1("H*")
            watch(@token, seconds)
            @token
          rescue ThreadError => e # no thread would end the profile
            @token = nil
            profiler.halt if profiler.session == @session
            refuse("no thread could be started to end this #{noun}: #{e.message}")
          end
        end
      end

      # @param token [String] from start
      # @param gc [Boolean] collect garbage first
      # @return [Profile]
      # @raise [Unavailable] if the profile of this token has already ended
      def stop(token, gc: false)
        @lock.synchronize do
          refuse("this #{noun} has ended already, or another requester stopped it") unless token && token == @token &&
                                                                                           held?

          finish(gc: gc)
        end
      end

      # Stops a shared profile on behalf of any process of the cluster.
      #
      # @return [Profile]
      # @raise [Unavailable] unless a profile that was started as shared is running
      def stop_shared
        @lock.synchronize do
          refuse("no #{noun} is running here") unless profiler.running?
          refuse("the running #{noun} was not started on a page: only its starter can stop it") unless shared?

          finish
        end
      end

      # @return [Boolean] whether the running profile is a lease
      def held? = !@token.nil? && profiler.running? && profiler.session == @session

      # @return [Boolean] whether the running profile is a lease that was started as shared
      def shared? = @shared == true && held?

      # @return [Hash{Symbol => Object}] `running`: whether a profile is running; `shared`: as shared?
      def state = { running: profiler.running?, shared: shared? }

      private

      def noun = profiler.noun

      def refuse(message) = raise(profiler::Unavailable, message)

      def begin_session(**options)
        @session = profiler.start_session(**options)
      end

      # A forked child continues its parent's profile, but lacks the thread that would end it: the profile ends here.
      def forked
        held = held?
        @token = nil
        @lock = Mutex.new
        profiler.halt if held
      end

      def finish(gc: false)
        @token = nil
        collect if gc
        taken
      end

      # The second collection frees what the first has left to finalizers.
      def collect = 2.times { GC.start }

      def taken = profiler.stop

      def watch(token, seconds)
        @watcher&.kill # of an earlier profile, which is over: it may sleep on for a day
        @watcher = Forks.background("memscope profile") { expire(token, seconds) }
      end

      def expire(token, seconds)
        wait(token, seconds)
        sleep(GRACE)
        @lock.synchronize do
          next unless @token == token

          expired if held?
          @token = nil
        end
      end
    end
  end
end
