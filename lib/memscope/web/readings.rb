# frozen_string_literal: true

require_relative "../ttl_cache"

module Memscope
  module Web
    # Readings for all requests. One thread at a time takes a reading; threads that wait for the same reading share it.
    # A reading is kept for ten times as long as reading and rendering took, but at least a second and at most half a
    # minute. So any number of requests costs at most a tenth of the time, unless a reading takes more than three
    # seconds. Errors are kept as well. A forked child takes its own readings.
    #
    # @api private
    class Readings
      # Seconds.
      SHORTEST = 1.0
      LONGEST = 30.0
      # A reading is kept for this many times the seconds that it took.
      REST = 10
      # How many readings are kept: those used most recently.
      MOST = 64
      # Kinds made from the workers' last reports to their master. How long they are kept depends on this thread's CPU
      # time, not on how long it waited for the master, and SHORTEST does not apply: consecutive scrapes reach different
      # workers, and if one still had an older report, counters would seem to fall.
      REPORTED = %i[workers metrics].freeze
      # Kinds that are cheap enough to be read while another thread takes another reading.
      CHEAP = %i[ledger history workers metrics].freeze
      WALL = Clock.method(:now)
      OWN_WORK = Clock.method(:cpu)
      private_constant :SHORTEST, :LONGEST, :REST, :MOST, :REPORTED, :CHEAP, :WALL, :OWN_WORK

      # How each kind is read in this process.
      KINDS = {
        **%i[ledger history verdict arenas ruby_heap mappings workers size_classes tags
             diagnosis_with_forecast].to_h { |call| [call, ->(**options) { Calls.run(call, **options) }] },
        metrics: -> { Memscope::Prometheus.text }
      }.freeze

      # A reading with the bodies that were rendered from it, and the seconds that rendering took.
      class Rendered
        # @return [Reading]
        attr_reader :reading
        # @return [Float]
        attr_reader :seconds

        # @param reading [Reading]
        # @param clock [#call] returns seconds
        def initialize(reading, clock: WALL)
          @reading = reading
          @clock = clock
          @seconds = 0.0
          @bodies = {}
          @mutex = Mutex.new
        end

        # @param form [Symbol] key of the body, such as :json
        # @yieldparam reading [Reading]
        # @return [String] what the block returned when it was first called for this form
        def body(form)
          @mutex.synchronize do
            @bodies[form] ||= begin
              started = @clock.call
              yield(reading).tap { @seconds += @clock.call - started }
            end
          end
        end
      end

      # @param kinds [Hash{Symbol => Proc}]
      # @param clock [#call] returns seconds
      # @param own_work [#call] returns the calling thread's CPU time in seconds
      def initialize(kinds = KINDS, clock: WALL, own_work: OWN_WORK)
        @kinds = kinds
        @clock = clock
        @own_work = own_work
        @mutex = Mutex.new
        @one_at_a_time = Mutex.new
        @caches = {}
      end

      # @param kind [Symbol] a key of KINDS; or any other, with a block that takes the reading
      # @param key [Array<Object>] what else distinguishes this reading from others of its kind
      # @param sharers [Integer] how many processes take this reading, each for its own clients: all of them together
      #   cost at most a tenth of the time
      # @param options [Hash{Symbol => Object}] options of this kind
      # @return [Object] the reading, possibly some seconds old
      def fetch(kind, *key, sharers: 1, **options, &block)
        reported = REPORTED.include?(kind)
        cache = cache([kind, *key, options], reported ? @own_work : @clock)
        ttl = lambda do |took|
          took += cache.value.seconds if cache.value.is_a?(Rendered)
          (REST * took * sharers).clamp(reported ? 0.0 : SHORTEST, LONGEST)
        end
        cache.fetch(ttl) { read(kind, options, &block) }
      end

      # @return [Rendered] the reading that the block returns, and its bodies
      def fetch_rendered(kind, *arguments) = fetch(kind, *arguments) { Rendered.new(yield, clock: @clock) }

      # Drops all readings, because the process was changed.
      #
      # @return [void]
      def forget = @mutex.synchronize { @caches = {} }

      private

      # A block needs no lock here: it asks another process, which itself answers one call at a time.
      def read(kind, options)
        return yield if block_given?
        return @kinds.fetch(kind).call(**options) if CHEAP.include?(kind)

        @one_at_a_time.synchronize { @kinds.fetch(kind).call(**options) }
      end

      def cache(key, work)
        @mutex.synchronize do
          found = @caches.delete(key)
          @caches.shift if @caches.size >= MOST
          @caches[key] = found || TtlCache.new(keep_errors: true, clock: @clock, work: work)
        end
      end
    end
  end
end
