# frozen_string_literal: true

module Memscope
  module Web
    # Readings for whoever asks: each is taken by one thread at a time, others wait for that one, and it is kept for a
    # second, or ten times as long as it took. So reading takes at most a tenth of the time, however many ask.
    #
    # What failed is kept as well. Nothing is kept across a fork.
    #
    # @api private
    class Readings
      # Seconds.
      SHORTEST = 1.0
      LONGEST = 30.0
      # How many times as long as it took a reading is kept.
      REST = 10
      # As many as are kept: one of each kind, and the size classes of some arenas.
      MOST = 64
      private_constant :SHORTEST, :LONGEST, :REST, :MOST

      # One reading.
      class Slot
        # @param clock [#call] returns seconds
        def initialize(clock)
          @clock = clock
          @mutex = Mutex.new
        end

        # @yield where there is none that is fresh
        # @return [Object] what the block returned, now or a moment ago
        def fetch(&block)
          @mutex.synchronize do
            take(&block) unless fresh?
            raise @failure if @failure

            @value
          end
        end

        private

        def fresh? = @until && Process.pid == @pid && @clock.call < @until

        def take
          started = @clock.call
          @value = @failure = nil
          begin
            @value = yield
          rescue StandardError, ScriptError => e
            @failure = e
          end
          finished = @clock.call
          @pid = Process.pid
          @until = finished + (REST * (finished - started)).clamp(SHORTEST, LONGEST)
        end
      end
      private_constant :Slot

      # How each is read.
      KINDS = {
        ledger: -> { Memscope.ledger },
        diagnosis: -> { Memscope.doctor },
        forecast: -> { Memscope.purge(dry_run: true) },
        arenas: -> { Memscope.arenas },
        size_classes: ->(arena) { Memscope.size_classes(arena: arena) },
        fragmentation: -> { Memscope.fragmentation },
        ruby_heap: -> { Memscope.ruby_heap },
        mappings: -> { Memscope.mappings },
        workers: -> { Memscope.workers },
        metrics: -> { Memscope::Prometheus.text }
      }.freeze

      # @param kinds [Hash{Symbol => Proc}]
      # @param clock [#call] returns seconds
      def initialize(kinds = KINDS, clock: -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) })
        @kinds = kinds
        @clock = clock
        @mutex = Mutex.new
        @slots = {}
      end

      # @param kind [Symbol] of KINDS; any other with a block, which reads it then
      # @return [Reading] which may be some seconds old: its `at` says
      def fetch(kind, *arguments)
        slot([kind, *arguments]).fetch { block_given? ? yield : @kinds.fetch(kind).call(*arguments) }
      end

      # Forgets all, because the process was changed.
      #
      # @return [void]
      def forget
        @mutex.synchronize { @slots = {} }
        nil
      end

      private

      def slot(key)
        @mutex.synchronize do
          @slots.shift if @slots.size >= MOST && !@slots.key?(key)
          @slots[key] ||= Slot.new(@clock)
        end
      end
    end
  end
end
