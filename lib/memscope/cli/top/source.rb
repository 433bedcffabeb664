# frozen_string_literal: true

# Required up front, not on first use: the reader's thread may be stopped at any moment, and RubyGems complains about a
# thread that ends in the middle of a require.
require_relative "../../remote/client"
require_relative "../../remote/external_process"

module Memscope
  module CLI
    # The parts of `memscope top`.
    module Top
      # All visible Ruby processes, by RSS.
      class AllProcesses
        # @return [Boolean] whether further readings would be pointless
        def over? = false

        # @return [Hash{Symbol => Object}] parts of a frame, see Reader
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
        KERNELS = { anonymous_bytes: "anonymous (heap, stacks)", file_bytes: "files",
                    shared_memory_bytes: "shared memory" }.freeze
        private_constant :KERNELS

        # @param client [Client]
        def initialize(client)
          @client = client
        end

        # @return [Boolean] whether the process is gone
        def over? = @over || false

        # @return [Hash{Symbol => Object}] parts of a frame; only a note if the process is gone
        def read
          ledger = @client.call(:ledger)
          { title: "pid #{ledger.pid} ruby #{ledger.ruby} #{ledger.allocator.name} serves malloc", verdict: verdict,
            rows: [[:rss, ledger.rss_bytes, "RSS"], *leaves(ledger).sort_by { |path, bytes| [-bytes, path] }],
            long: :end }
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

        def leaves(ledger)
          ledger.each_path.filter_map do |path, row, above|
            [path, row.bytes, [*above, row].map(&:label).join(" / ")] if row.leaf?
          end
        end

        def kernels_view
          process = ExternalProcess.read(@client.pid, cgroup: false)
          { title: "pid #{process.pid}: kernel's view only (process does not listen)",
            rows: [[:rss, process.rss_bytes, "RSS"],
                   *KERNELS.map { |name, text| [name, process.public_send(name), text] }] }
        end
      end

      # Reads a source at an interval, in a thread of its own, so that top answers keys even if the other process hangs.
      class Reader
        # The largest share of time that readings may take.
        SHARE = 0.1
        private_constant :SHARE

        # The latest frame, what top shows at one moment: rows of [id, bytes, text], of which the first is RSS for a
        # single process; what becomes of a `long` text (see Report::Table); `title`, `verdict` (the sentence of its
        # verdict), `note` and `moment`.
        #
        # @return [Hash{Symbol => Object}]
        attr_reader :frame

        # @param source [AllProcesses, OneProcess]
        # @param every [Float] seconds
        # @yield when there is a new frame
        def initialize(source, every, &news)
          @frame = { title: "memscope top", rows: [], note: "reading" }.freeze
          @thread = Forks.background("memscope top") { work(source, every, &news) }
          @thread.report_on_exception = false
        end

        # @return [void]
        def stop = @thread.kill.join

        private

        def work(source, every)
          until source.over?
            started = Clock.now
            @frame = { **@frame, **reading(source) }.freeze
            yield
            sleep([every, (Clock.now - started) / SHARE].max)
          end
        end

        # An error is shown until a reading succeeds.
        def reading(source)
          { note: nil, **source.read, moment: Clock.now }
        rescue Client::Unreachable, Client::Failed, SystemCallError => e
          { note: e.message }
        end
      end
    end
  end
end
