# frozen_string_literal: true

module Memscope
  module CLI
    module Top
      # Reads from a source at an interval, and does what is ordered, in a thread of its own: the keys are answered
      # meanwhile, whatever the other process does.
      class Reader
        # A reading may take this share of the time.
        SHARE = 0.1
        private_constant :SHARE

        # @return [IO] readable when there is another frame
        attr_reader :news

        # @param source [Source]
        # @param every [Float] seconds
        def initialize(source, every)
          @source = source
          @every = every
          @orders = []
          @lock = Mutex.new
          @bell = ConditionVariable.new
          @news, @alarm = IO.pipe
          @frame = Frame.new(title: "memscope top", rows: [], note: "reading")
          @thread = Thread.new { work }
          @thread.report_on_exception = false
        end

        # @return [Frame] the last one
        def frame = @lock.synchronize { @frame }

        # @param name [Symbol] :purge or :gc
        # @return [void]
        def order(name)
          @lock.synchronize do
            @orders << name unless @orders.include?(name)
            @frame = @frame.with(note: "#{name}: asked for")
            @bell.signal
          end
        end

        # @return [void]
        def stop
          @thread.kill.join
          [@news, @alarm].each(&:close)
        end

        private

        def work
          pause = 0
          loop do
            order = next_order(pause)
            started = now
            show(order ? @source.carry_out(order) : @source.read)
            pause = @source.over? ? nil : [@every, (now - started) / SHARE].max
          end
        end

        # nil to read: when the time is over. Waits for an order only where there is nothing left to read.
        def next_order(pause)
          @lock.synchronize do
            @bell.wait(@lock, pause) if @orders.empty?
            @orders.shift
          end
        end

        def show(frame)
          @lock.synchronize { @frame = frame }
          @alarm.write_nonblock(".", exception: false)
        end

        def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
