# frozen_string_literal: true

# Required up front, not on first use: the reader's thread may be stopped at any moment, and RubyGems complains about a
# thread that ends in the middle of a require.
require_relative "../../client"
require_relative "../../remote/external_process"
require_relative "../../purge"
require_relative "../../report/quantity"
require_relative "../ps_command"

module Memscope
  module CLI
    # The parts of `memscope top`.
    module Top
      # What top shows at one moment: rows of [id, bytes, text or a list of labels]; for a single process the first
      # row is its RSS.
      Frame = Struct.new(:title, :rows, :note, :moment, keyword_init: true) do
        # @return [Frame]
        def with(**changes) = self.class.new(**to_h, **changes)
      end

      # Where frames come from. No method here raises: an error becomes the frame's note.
      class Source
        def initialize
          @frame = Frame.new(title: "memscope top", rows: [])
        end

        # @return [Boolean] whether further readings would be pointless
        def over? = @over || false

        # @return [Frame]
        def read
          @frame = Frame.new(note: @note, **look, moment: Clock.now)
        rescue Client::Unreachable, Client::Failed, SystemCallError => e
          @frame = @frame.with(note: e.message)
        end

        private

        # Shows a note until another one replaces it.
        def note(text)
          @note = text
          @frame = @frame.with(note: text)
        end
      end

      # All visible Ruby processes, by RSS.
      class AllProcesses < Source
        # @return [Frame]
        def carry_out(_order) = note("p and g are for one process: memscope top --pid N")

        private

        def look
          entries = PsCommand.entries
          rows = entries.map do |entry|
            process = entry.process
            words = [process.pid.to_s.rjust(7), entry.malloc_text.to_s.ljust(9), process.command]
            [process.pid, process.rss_bytes, words.join(" ")]
          end
          { title: "#{entries.size} Ruby process#{'es' unless entries.one?}, by RSS", rows: rows }
        end
      end

      # The rows of one process's ledger; if the process does not listen, the kernel's view.
      class OneProcess < Source
        include Report::Quantity

        LEVERS = { purge: [], gc: ["gc"] }.freeze
        KERNELS = { anonymous_bytes: "anonymous (heap, stacks)", file_bytes: "files",
                    shared_memory_bytes: "shared memory" }.freeze
        private_constant :LEVERS, :KERNELS

        # @param client [Client]
        def initialize(client)
          super()
          @client = client
        end

        # @param order [Symbol] a key of LEVERS
        # @return [Frame]
        def carry_out(order)
          result = @client.call(:purge, levers: LEVERS.fetch(order))
          took = result.levers.sum(&:wall_ms)
          read
          note("#{order} returned #{size(result.returned_bytes || 0)} in #{took.round} ms, " \
               "at #{Time.now.strftime('%H:%M:%S')}")
        rescue Client::Unreachable, Client::Failed, Purge::Busy, ArgumentError => e
          note(e.message)
        end

        private

        def look
          ledger = @client.call(:ledger)
          { title: "pid #{ledger.pid} ruby #{ledger.ruby} #{ledger.allocator.name} serves malloc",
            rows: [[:rss, ledger.rss_bytes, "RSS"], *leaves(ledger).sort_by { |path, bytes| [-bytes, path] }] }
        rescue Client::Unreachable => e
          return kernels_view if e.why == :silent

          @over = e.why == :gone
          raise unless @over

          { **@frame.to_h.slice(:title, :rows), note: "#{e.message}; these are its last numbers" }
        end

        def leaves(ledger)
          ledger.each_path.filter_map do |path, row, above|
            [path, row.bytes, [*above, row].map(&:label)] if row.leaf?
          end
        end

        def kernels_view
          process = ExternalProcess.read(@client.pid, cgroup: false)
          { title: "pid #{process.pid}: kernel's view only (process does not listen)",
            rows: [[:rss, process.rss_bytes, "RSS"],
                   *KERNELS.map { |name, text| [name, process.public_send(name), text] }] }
        end
      end

      # Reads a source at an interval and carries out orders, in a thread of its own, so that top keeps answering keys
      # even if the other process hangs.
      class Reader
        # The largest share of time that readings may take.
        SHARE = 0.1
        private_constant :SHARE

        # @return [IO] readable when there is a new frame
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

        # @return [Frame] the latest one
        def frame = @lock.synchronize { @frame }

        # @param name [Symbol] :purge or :gc
        # @return [void]
        def order(name)
          @lock.synchronize do
            @orders << name unless @orders.include?(name)
            @frame = @frame.with(note: "#{name}: requested")
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
            started = Clock.now
            show(order ? @source.carry_out(order) : @source.read)
            pause = @source.over? ? nil : [@every, (Clock.now - started) / SHARE].max
          end
        end

        # The next order; nil if none arrives within the pause: time to read. A nil pause waits until there is an order.
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
      end
    end
  end
end
