# frozen_string_literal: true

require_relative "native"

module Memscope
  # Which line of Ruby holds memory that malloc gave: samples one byte in `rate`, with the stack it was allocated at,
  # and follows each sampled block until it is freed.
  #
  # One profile runs at a time, for the whole process, whichever thread starts it. A forked child goes on with its own
  # copy: what runs in its parent runs in it too, until the child stops it, and it can start another one after that.
  #
  #     Memscope::MallocProfile.start
  #     # … a while later
  #     puts Memscope::MallocProfile.stop
  module MallocProfile
    # Bytes from one sample to the next, in the mean, where nothing else is said: cheap enough to be always on.
    RATE = 1 << 19
    # The rates that are taken. Smaller ones would sample nearly every block.
    RATES = (1 << 9)..(1 << 30)
    # The longest name of a tag.
    TAG_BYTES = 64
    # What start takes as its `backend`.
    BACKENDS = %i[auto jemalloc imports].freeze

    # What jemalloc has to be started with for its backend; costs nothing until a profile starts.
    CONF = "prof:true,prof_active:false,prof_accum:true"

    # Why jemalloc's profiler cannot be used, and what would help.
    OBSTACLES = {
      off: "jemalloc's profiler was not asked for when this process started: start it with " \
           "`memscope exec --profile -- COMMAND`, or with MALLOC_CONF=#{CONF}",
      not_built: "this jemalloc was built without its profiler (--enable-prof)",
      no_hook: "this jemalloc is older than 5.3.0, the first whose profiler takes stacks of Ruby",
      other: "no jemalloc serves malloc here: start the process with `memscope exec --profile -- COMMAND`"
    }.freeze
    private_constant :OBSTACLES

    # A profile runs already, or cannot run here. The message says what to do.
    class Unavailable < StandardError; end

    RUNS_ALREADY = "a malloc profile runs already: stop it first (Memscope::MallocProfile.stop)"
    RUNS_NOT = "no malloc profile runs: start one first (Memscope::MallocProfile.start)"
    private_constant :RUNS_ALREADY, :RUNS_NOT

    autoload :Lease, File.join(__dir__, "malloc_profile/lease.rb")

    class << self
      # @param rate [Integer] bytes from one sample to the next in the mean, a power of two from 512 to 2^30
      # @param backend [Symbol] `:jemalloc` lets its own profiler sample, where it was started with `prof:true`;
      #   `:imports` needs nothing set: it puts itself between all loaded libraries and the malloc that they call;
      #   `:auto` is `:jemalloc`, and says what to do where that cannot be
      # @return [void]
      # @raise [ArgumentError] for another rate or backend
      # @raise [Unavailable] where a profile runs already, in a forked child also that of its parent, or this process
      #   cannot have one. What runs goes on.
      def start(rate: RATE, backend: :auto)
        start_session(rate: rate, backend: backend)
        nil
      end

      # @api private
      # @return [Integer] which profile it has started: `session`, as long as no other one is
      # @raise [ArgumentError, Unavailable] as start
      def start_session(rate: RATE, backend: :auto)
        check(rate: rate, backend: backend)
        raise Unavailable, RUNS_ALREADY if running?
        raise Unavailable, Memscope.unsupported_reason unless Memscope.supported?

        backend = :jemalloc if backend == :auto
        refuse_jemalloc if backend == :jemalloc && Native.jemalloc_profiling != :on
        prepare
        started = Native.start_profile(backend, rate.bit_length - 1)
        raise Unavailable, RUNS_ALREADY if started == :running # another thread was faster
        raise Unavailable, "the malloc profile could not be started: #{started}" if started.is_a?(String)

        started
      end

      # Starts nothing.
      #
      # @api private
      # @return [void]
      # @raise [ArgumentError] as start
      def check(rate: RATE, backend: :auto)
        check_rate(rate)
        check_backend(backend)
      end

      # @return [Profile] as it was when it was stopped
      # @raise [Unavailable] where none runs, and where another thread has started the next one before this one was read
      def stop
        read_stopped(Native.stop_profile)
      end

      # As Memscope.malloc_profile.
      #
      # @return [Profile]
      def record(rate: RATE, backend: :auto)
        raise ArgumentError, "Memscope.malloc_profile: no block given" unless block_given?

        start(rate: rate, backend: backend)
        begin
          yield
        ensure
          stopped = Native.stop_profile
        end
        stopped ? read_stopped(stopped) : snapshot
      end

      # As Memscope.tag.
      def tag(name, &block)
        raise ArgumentError, "Memscope.tag: no block given" unless block

        Native.tag(tag_name(name), &block)
      end

      # @api private
      # @return [Integer] which profile runs, or can be read; 0 for none
      def session = Native.profile_session

      # @return [Boolean]
      def running? = Native.profile_runs?

      # @return [Profile] of the profile that runs, or of the last one
      # @raise [Unavailable] where none was started
      def snapshot
        read(Native.malloc_profile) || raise(Unavailable, "no malloc profile was started: " \
                                                          "Memscope::MallocProfile.start")
      end

      # What is allocated from now on is of another generation: what a leak keeps shows as old ones that stay.
      #
      # @return [Integer] its number; the first one is 0
      def next_generation = Native.next_generation

      private

      def read_stopped(which)
        raise Unavailable, RUNS_NOT unless which

        read(Native.malloc_profile(which)) ||
          raise(Unavailable, "the malloc profile was stopped, but another one was started before it was read")
      end

      def read(body)
        raise Unavailable, "the malloc profile could not be read: #{body}" if body.is_a?(String)

        body && Profile.capture(body)
      end

      def check_rate(rate)
        return if rate.is_a?(Integer) && RATES.cover?(rate) && rate.nobits?(rate - 1)

        raise ArgumentError, "Memscope::MallocProfile.start: rate: given #{rate.inspect}, allowed: a power of two " \
                             "from #{RATES.first} to #{RATES.last} bytes"
      end

      def check_backend(backend)
        return if BACKENDS.include?(backend)

        raise ArgumentError, "Memscope::MallocProfile.start: backend: given #{backend.inspect}, allowed: " \
                             "#{BACKENDS.map(&:inspect).join(', ')}"
      end

      # A Symbol has its name made once.
      def tag_name(name)
        name = name.name if name.is_a?(Symbol)
        return name if name.is_a?(String) && name.bytesize.between?(1, TAG_BYTES)

        raise ArgumentError, "Memscope.tag: given #{name.inspect}, allowed: a String or Symbol of 1 to " \
                             "#{TAG_BYTES} bytes"
      end

      def refuse_jemalloc
        raise Unavailable, "#{OBSTACLES.fetch(Native.jemalloc_profiling)}; or take backend: :imports, which needs " \
                           "nothing set"
      end

      def prepare
        raise Unavailable, "no memory for a malloc profile" unless Native.prepare_profile

        @learnt ||= Thread.new do
          Native.learn_vm_entry_points
          true
        end.value
        Profile.const_get(:Libraries) # a trap handler that reads the profile can load nothing
        # Before 3.2 automatic compaction moves what such a thread's frames point to at any time.
        Native.read_frames_without_gvl(RUBY_VERSION >= "3.2" || !GC.auto_compact)
      end
    end
  end
end
