# frozen_string_literal: true

require_relative "../value/ttl_cache"

module Memscope
  module Web
    # Readings for all requests. One thread at a time takes a reading; threads that wait for the same reading share it.
    # A reading is kept for ten times as long as it took, but at least a second and at most half a minute. So any number
    # of requests costs at most a tenth of the time, unless a reading takes more than three seconds. Errors are kept as
    # well. A forked child takes its own readings.
    #
    # @api private
    class Readings
      # Seconds.
      MIN_REST = 1.0
      MAX_REST = 30.0
      # A reading is kept for this many times the seconds that it took.
      REST = 10
      # How many readings are kept: those used most recently.
      MAX_KEPT = 64
      # Kinds that are cheap enough to be read while another thread takes another reading.
      CHEAP = %i[ledger history workers metrics].freeze
      # How kinds are read that Calls does not know.
      KINDS = { metrics: -> { Memscope::Prometheus.text } }.freeze
      private_constant :MIN_REST, :MAX_REST, :REST, :MAX_KEPT, :CHEAP

      # @param kinds [Hash{Symbol => Proc}]
      # @param clock [#call] returns seconds
      def initialize(kinds = KINDS, clock: Clock.method(:now))
        @kinds = kinds
        @clock = clock
        @mutex = Mutex.new
        @one_at_a_time = Mutex.new
        @caches = {}
      end

      # @param kind [Symbol] a key of KINDS or a name of Calls; or any other, with a block that takes the reading
      # @param key [Array<Object>] what else distinguishes this reading from others of its kind
      # @param sharers [Integer] how many processes take this reading, each for its own clients: all of them together
      #   cost at most a tenth of the time
      # @param options [Hash{Symbol => Object}] options of this kind
      # @return [Object] the reading, possibly some seconds old
      def fetch(kind, *key, sharers: 1, **options, &block)
        # Consecutive scrapes reach different workers: if one still had older metrics, counters would seem to fall.
        rest = kind == :metrics ? 0 : ->(took) { (REST * took * sharers).clamp(MIN_REST, MAX_REST) }
        cache([kind, *key, options]).fetch(rest) { read(kind, options, &block) }
      end

      # Drops all readings, because the process was changed.
      #
      # @return [void]
      def forget = @mutex.synchronize { @caches = {} }

      private

      # A block needs no lock here: it asks another process, which itself answers one call at a time.
      def read(kind, options)
        return yield if block_given?

        take = @kinds[kind] || ->(**given) { Calls.run(kind, **given) }
        CHEAP.include?(kind) ? take.call(**options) : @one_at_a_time.synchronize { take.call(**options) }
      end

      def cache(key)
        @mutex.synchronize do
          found = @caches.delete(key)
          @caches.shift if @caches.size >= MAX_KEPT
          @caches[key] = found || TtlCache.new(keep_errors: true, clock: @clock)
        end
      end
    end
  end
end
