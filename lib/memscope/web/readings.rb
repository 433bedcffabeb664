# frozen_string_literal: true

module Memscope
  module Web
    # Readings for whoever asks: each is taken by one thread at a time, those who wait for it share it, and it is kept
    # for a second, or ten times as long as it took. So reading takes at most a tenth of the time, however many ask.
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

      # What workers have told their master, who only repeats it. To wait for that is no work; and what one worker kept
      # would be older than what another has said meanwhile: counters would go back.
      TOLD = %i[workers metrics].freeze
      WALL = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
      OWN_WORK = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }
      private_constant :TOLD, :WALL, :OWN_WORK

      # One reading.
      class Slot
        # @param clock [#call] returns seconds
        # @param work [#call] returns seconds, of what counts as work of a reading
        # @param shortest [Float] seconds for which it is kept at least
        def initialize(clock:, work:, shortest:)
          @clock = clock
          @work = work
          @shortest = shortest
          @mutex = Mutex.new
        end

        # @yield where there is none that is fresh, or that has ended since this was called
        # @return [Object] what the block returned, now or a moment ago
        def fetch(&block)
          asked = @clock.call
          @mutex.synchronize do
            take(&block) unless fresh?(asked)
            raise @failure if @failure

            @value
          end
        end

        private

        def fresh?(asked) = Process.pid == @pid && (asked < @finished || @clock.call < @until)

        def take
          started = @work.call
          @value = @failure = nil
          begin
            @value = yield
          rescue StandardError, ScriptError => e
            @failure = e
          end
          @finished = @clock.call
          @until = @finished + (REST * (@work.call - started)).clamp(@shortest, LONGEST)
          @pid = Process.pid
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
      # @param own_work [#call] returns seconds that this thread has worked
      def initialize(kinds = KINDS, clock: WALL, own_work: OWN_WORK)
        @kinds = kinds
        @clock = clock
        @own_work = own_work
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
          @slots[key] ||= empty(TOLD.include?(key.first))
        end
      end

      def empty(told)
        Slot.new(clock: @clock, work: told ? @own_work : @clock, shortest: told ? 0.0 : SHORTEST)
      end
    end
  end
end
