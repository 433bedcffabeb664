# frozen_string_literal: true

# Required up front, not on first use: the reader's thread may be stopped at any moment, and RubyGems complains about a
# thread that ends in the middle of a require.
require_relative "../../client"
require_relative "../../remote/external_process"
require_relative "../../purge"
require_relative "../../report/tags"
require_relative "../../ttl_cache"

module Memscope
  module CLI
    # The parts of `memscope top`.
    module Top
      # What top shows at one moment: rows of [id, bytes, text or a list of labels]; for a single process the first
      # row is its RSS.
      # `verdict` is the sentence of its verdict, `tags` a line for each of the tags that retain most.
      Frame = Struct.new(:title, :verdict, :rows, :tags, :note, :moment, keyword_init: true) do
        # @return [Frame]
        def with(**changes) = self.class.new(**to_h, **changes)
      end

      # All visible Ruby processes, by RSS.
      class AllProcesses
        # @return [Boolean] whether further readings would be pointless
        def over? = false

        # @return [String] what became of an order
        def carry_out(_order) = "p and g are for one process: memscope top --pid N"

        # @return [Hash{Symbol => Object}] parts of a Frame
        def read
          entries = Peers.entries
          rows = entries.map do |entry|
            process = entry.process
            words = [process.pid.to_s.rjust(7), entry.malloc_text.to_s.ljust(9), process.command]
            [process.pid, process.rss_bytes, words.join(" ")]
          end
          { title: "#{entries.size} Ruby process#{'es' unless entries.one?}, by RSS", rows: rows }
        end
      end

      # The rows of one process's ledger; if the process does not listen, the kernel's view.
      class OneProcess
        include Report::Quantity

        LEVERS = { purge: [], gc: ["gc"] }.freeze
        KERNELS = { anonymous_bytes: "anonymous (heap, stacks)", file_bytes: "files",
                    shared_memory_bytes: "shared memory" }.freeze
        # How many tags are shown, and seconds between two readings of the tags: only full GCs change what tags retain,
        # and such a reading also reads a malloc profile if one runs.
        TAGS = 3
        TAGS_INTERVAL = 60
        private_constant :LEVERS, :KERNELS, :TAGS, :TAGS_INTERVAL

        # @param client [Client]
        def initialize(client)
          @client = client
          @tags = TtlCache.new
        end

        # @return [Boolean] whether the process is gone
        def over? = @over || false

        # @param order [Symbol] a key of LEVERS
        # @return [String] what became of it
        def carry_out(order)
          result = @client.call(:purge, levers: LEVERS.fetch(order))
          took = result.levers.sum(&:wall_ms).round
          left = " (without #{result.left_out.keys.join(' and ')})" if result.left_out.any?
          gained = size(result.gained_bytes || 0)
          "#{order}#{left} returned #{gained} in #{took} ms, at #{Time.now.strftime('%H:%M:%S')}"
        rescue Client::Unreachable, Client::Failed, Purge::Busy, ArgumentError => e
          e.message
        end

        # @return [Hash{Symbol => Object}] parts of a Frame; only a note if the process is gone
        def read
          ledger = @client.call(:ledger)
          { title: "pid #{ledger.pid} ruby #{ledger.ruby} #{ledger.allocator.name} serves malloc", verdict: verdict,
            rows: [[:rss, ledger.rss_bytes, "RSS"], *leaves(ledger).sort_by { |path, bytes| [-bytes, path] }],
            tags: @tags.fetch(TAGS_INTERVAL) { tags } }
        rescue Client::Unreachable => e
          return kernels_view if e.why == :silent

          @over = e.why == :gone
          raise unless @over

          { note: "#{e.message}; these are its last numbers" }
        end

        private

        # nil if the process keeps no history.
        def verdict
          @client.call(:verdict).then { |verdict| verdict.sentence if verdict.known? }
        rescue Client::Failed, ArgumentError # its memscope gives no verdicts
          nil
        end

        # Empty if what tags retain is unknown.
        def tags
          @client.call(:tags).rows.first(TAGS).filter_map { |row| retained(row) }
        rescue Client::Failed, ArgumentError # its memscope has no tags
          []
        end

        def retained(row)
          numbers = [row.retained_objects, row.retained_objects_error]
          return if numbers.include?(nil)

          number, error = numbers.map { |one| Report::TagsPage.decimal(one) }
          "#{number.rjust(9)} objects (error #{error}) retained by 1,000 runs of #{row.name}"
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

        # @param source [AllProcesses, OneProcess]
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
            @note = @source.carry_out(order) if order
            show(@source.over? ? { note: @note } : reading)
            pause = @source.over? ? nil : [@every, (Clock.now - started) / SHARE].max
          end
        end

        # The next order; nil if no order arrives within the pause, so that it is time to read. With a nil pause, waits
        # until there is an order.
        def next_order(pause)
          @lock.synchronize do
            @bell.wait(@lock, pause) if @orders.empty?
            @orders.shift
          end
        end

        # A note on an order stays until the next order; an error is shown until a reading succeeds.
        def reading
          { note: @note, **@source.read, moment: Clock.now }
        rescue Client::Unreachable, Client::Failed, SystemCallError => e
          { note: e.message }
        end

        def show(changes)
          @lock.synchronize { @frame = @frame.with(**changes) }
          @alarm.write_nonblock(".", exception: false)
        end
      end
    end
  end
end
