# frozen_string_literal: true

require "securerandom"
require_relative "../malloc_profile"

module Memscope
  module MallocProfile
    # A profile that was asked for from outside: by `memscope profile --pid`, or on a page of Memscope::Web. Whoever
    # asked may be gone before it is over, so it ends by itself.
    #
    # @api private
    module Lease
      # Seconds that a profile may be asked for.
      SECONDS = (0.001..86_400)
      # Seconds that it goes on then, for the asker to stop it.
      GRACE = 10

      # A child goes on with the profile of its parent, but has not the thread that would end it.
      module AfterFork
        # @api private
        def _fork = super.tap { |pid| Lease.forked if pid.zero? }
      end
      private_constant :AfterFork

      @lock = Mutex.new

      class << self
        # @param seconds [Numeric]
        # @param shared [Boolean] whether stop_shared may stop it too: several processes answer for one page
        # @return [String] what stops it
        # @raise [ArgumentError] for what cannot be
        # @raise [Unavailable] as MallocProfile.start
        def start(seconds:, rate: RATE, backend: :auto, shared: false)
          unless seconds.is_a?(Numeric) && seconds.real? && SECONDS.cover?(seconds)
            raise ArgumentError, "seconds: given #{seconds.inspect}, allowed: a number of seconds above 0, up to " \
                                 "#{SECONDS.end}"
          end

          @lock.synchronize do
            @session = MallocProfile.start_session(rate: rate, backend: backend)
            hook
            @shared = shared
            @token = SecureRandom.hex(8)
            watch(@token, seconds + GRACE)
            @token
          end
        end

        # @param token [String] from start
        # @return [Profile]
        # @raise [Unavailable] where it is over
        def stop(token)
          @lock.synchronize do
            unless token && token == @token && held?
              raise Unavailable, "this malloc profile is over already, or was stopped by somebody else"
            end

            @token = nil
            MallocProfile.stop
          end
        end

        # Whichever process of the cluster has asked for it.
        #
        # @return [Profile]
        # @raise [Unavailable] where none runs that was started as shared
        def stop_shared
          @lock.synchronize do
            raise Unavailable, "no malloc profile runs here" unless MallocProfile.running?
            raise Unavailable, "the malloc profile that runs here was not started on a page: who started it stops it" \
              unless shared?

            @token = nil
            MallocProfile.stop
          end
        end

        # @return [Boolean] whether what runs was asked for from outside
        def held? = !@token.nil? && MallocProfile.running? && MallocProfile.session == @session

        # @return [Boolean] whether what runs was asked for as shared
        def shared? = @shared == true && held?

        # For a page, or for another process, that shows whether there is anything to look at, to start or to stop.
        #
        # @return [Hash{Symbol => Object}] session: which one runs, or was the last, 0 for none; running, shared;
        #   jemalloc: whether its profiler is ready
        def state
          { session: MallocProfile.session, running: MallocProfile.running?, shared: shared?,
            jemalloc: Native.jemalloc_profiling == :on }
        end

        # In a child.
        def forked
          held = held?
          @token = nil
          @lock = Mutex.new
          Native.stop_profile if held
        end

        private

        def hook
          return if @hooked

          @hooked = true
          Process.singleton_class.prepend(AfterFork)
        end

        def watch(token, seconds)
          thread = Thread.new do
            sleep(seconds)
            @lock.synchronize do
              next unless @token == token

              Native.stop_profile if held?
              @token = nil
            end
          end
          thread.name = "memscope profile"
          thread.thread_variable_set(:fork_safe, true)
        end
      end
    end
  end
end
