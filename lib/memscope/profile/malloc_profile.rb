# frozen_string_literal: true

Memscope::Loading.unit :Profile

module Memscope
  # Which Ruby lines allocated live malloc memory: samples one allocated byte in `rate` on average, records the stack of
  # its allocation, and tracks each sampled block until it is freed.
  #
  # One profile runs at a time, for the whole process, whichever thread starts it. A forked child continues its own copy
  # of its parent's profile until the child stops it. Then it can start another one.
  #
  #     Memscope::MallocProfile.start
  #     # … a while later
  #     puts Memscope::MallocProfile.stop
  module MallocProfile
    # The default rate: bytes from one sample to the next on average. Cheap enough to be always on.
    RATE = 1 << 19
    # The allowed rates. Smaller ones would sample nearly every block.
    RATES = (1 << 9)..(1 << 30)
    # Another rate that `start` accepts: it samples nearly every block, which costs some microseconds per allocation.
    # @api private
    EVERY_BLOCK = 1
    # The maximum length of a tag's name.
    TAG_BYTES = 64
    # The backends that `start` accepts.
    BACKENDS = %i[auto jemalloc imports].freeze

    # The options with which jemalloc must have been started for the backend :jemalloc. They cost nothing until a
    # profile starts.
    CONF = "prof:true,prof_active:false"
    # An additional option, with which jemalloc counts freed memory too. jemalloc then keeps each stack, some 0.8 kB, as
    # long as the process lives.
    ACCUMULATED = "prof_accum:true"

    # Why jemalloc's profiler cannot be used.
    OBSTACLES = { off: :profiler_off, not_built: :profiler_not_built, no_hook: :profiler_no_hook,
                  other: :profiler_other }.freeze

    # The first version of jemalloc whose profiler can record Ruby stacks. That profiler can crash: jemalloc's issue
    # 2681.
    CRASHING = "5.3.0"
    private_constant :OBSTACLES, :CRASHING

    extend Profile::Profiler

    @lease = Profile::Lease.new(self, judge: true)

    class << self
      # @param rate [Integer] bytes from one sample to the next on average, a power of two from 512 to 2^30
      # @param backend [Symbol] `:jemalloc`: jemalloc's own profiler, available if jemalloc was started with
      #   `prof:true`; `:imports`: patches the imports of malloc and free in all loaded libraries, and needs no
      #   settings; `:auto`: the same as `:jemalloc`. Unlike `auto` on the command line of `memscope profile`, it does
      #   not fall back to `:imports`. If jemalloc's profiler is unavailable, the error names the remedy
      # @return [void]
      # @raise [ArgumentError] for any other rate or backend
      # @raise [Unavailable] if a profile is already running (in a forked child, perhaps the copy of its parent's
      #   profile), or if a profile cannot run. A running profile continues.
      def start(rate: RATE, backend: :auto)
        start_session(rate: rate, backend: backend)
        nil
      end

      # @api private
      # @return [String, nil] why the profiler of this version of jemalloc must not be enabled, and the alternative
      def crash(version) = (Reasons.sentence([:jemalloc_profiler_crashes, CRASHING]) if version&.start_with?(CRASHING))

      # @api private
      def check(rate: RATE, backend: :auto)
        allowed = rate?(rate) || EVERY_BLOCK.eql?(rate)
        refuse("rate", rate, "a power of two from #{RATES.first} to #{RATES.last} bytes") unless allowed
        Field.choice(:backend, backend, BACKENDS, call: "#{name}.start")
      end

      # @api private
      def rate?(rate) = rate.is_a?(Integer) && RATES.cover?(rate) && rate.nobits?(rate - 1)

      # @return [Profile] the profile as of the moment it was stopped
      # @raise [Unavailable] if no profile is running, or if another thread started a new profile before the stopped
      #   profile was read
      def stop = read_stopped(end_session)

      # @api private
      # @return [Integer] the number of the running profile, or else of the last one; 0 if there was none
      def session = Native.profile_session

      # Ends the running profile, if any. It can still be read.
      # @api private
      def halt = Native.stop_profile

      # Implements Memscope.tag.
      def tag(name, &block)
        raise ArgumentError, "Memscope.tag: no block given" unless block

        Native.tag(tag_name(name), &block)
      end

      # @api private
      # @return [String] the beginning of a text, short enough for the name of a tag
      def shortened(text) = text.byteslice(0, TAG_BYTES).scrub("")

      # @return [Boolean]
      def running? = Native.profile_runs?

      # @return [Profile] the running profile, or else the last one
      # @raise [Unavailable] if no profile was started
      def snapshot = read(Native.malloc_profile(nil)) || refuse_not_running

      # Starts another generation: allocations from now on belong to it. A leak shows as old generations that stay live.
      #
      # @return [Integer] the number of the new generation; the first generation is 0
      def next_generation = Native.next_generation

      private

      def begin_session(rate: RATE, backend: :auto)
        backend = :jemalloc if backend == :auto
        refuse_jemalloc if backend == :jemalloc && Native.jemalloc_profiling != :on
        prepare
        Native.start_profile(backend, rate.bit_length - 1)
      end

      def end_session = Native.stop_profile

      # `ended` is nil if the block of `record` has stopped the profile itself.
      def recorded(ended) = ended ? read_stopped(ended) : snapshot

      def read(body) = readable(body) && Profile.capture(body)

      def read_stopped(which)
        refuse_not_running unless which
        read(Native.malloc_profile(which)) || raise(Unavailable, :profile_replaced)
      end

      # Symbol#name allocates only once per Symbol.
      def tag_name(name)
        name = name.name if name.is_a?(Symbol)
        return name if name.is_a?(String) && name.bytesize.between?(1, TAG_BYTES)

        Field.refuse(:name, name, "a String or Symbol of 1 to #{TAG_BYTES} bytes", call: "Memscope.tag")
      end

      def refuse_jemalloc
        obstacle = Native.jemalloc_profiling
        crash = crash(Native.allocator[:version]) if obstacle == :off
        raise crash ? Unavailable.new(:profiler_crashes, crash) : Unavailable.new(OBSTACLES.fetch(obstacle))
      end

      def prepare
        # Before Ruby 3.2, automatic compaction can at any time move objects that the frames of a thread without the GVL
        # point to.
        without_gvl = RUBY_VERSION >= "3.2" || !GC.auto_compact
        raise Unavailable, :profile_without_room unless Native.prepare_profile(without_gvl)

        @learnt ||= Thread.new { Native.learn_vm_entry_points }.join && true
        # Loaded now: a trap handler that reads the profile cannot load files.
        %i[Application Libraries].each { |name| Profile.const_get(name) }
      end
    end
  end
end
