# frozen_string_literal: true

# Required up front, not on first use: the reader's thread may be stopped at any moment, and RubyGems complains about a
# thread that ends in the middle of a require.
Memscope::Loading.units :Client, :ExternalProcess, :Peers

module Memscope
  module CLI
    # The parts of `memscope top`.
    module Top
      # All visible Ruby processes, by RSS.
      class AllProcesses
        def read
          entries = Peers.entries
          rows = entries.map do |entry|
            process = entry.process
            words = [process.pid.to_s.rjust(7), entry.malloc_text.to_s.ljust(9), process.command]
            [process.pid, process.rss_bytes, words.join(" ")]
          end
          { title: WORDS.fill(entries.one? ? :one_process : :processes, number: entries.size), rows: rows }
        end
      end

      # The rows of one process's ledger, or the kernel's view if the process does not listen.
      class OneProcess
        KERNELS = { anonymous_bytes: "anonymous (heap, stacks)", file_bytes: "files",
                    shared_memory_bytes: "shared memory" }.freeze

        def initialize(client)
          @client = client
        end

        # @return [Hash{Symbol => Object}] parts of a frame, or only a note and `over` if the process is gone
        def read
          ledger = @client.call(:ledger)
          { title: WORDS.fill(:served, pid: ledger.pid, ruby: ledger.ruby, allocator: ledger.allocator.name),
            verdict: verdict, long: :end,
            rows: [[:rss, ledger.rss_bytes, "RSS"], *leaves(ledger).sort_by { |path, bytes| [-bytes, path] }] }
        rescue Client::Unreachable => e
          return kernels_view if e.why == :silent

          raise unless e.why == :gone

          { note: WORDS.fill(:last_numbers, why: e.message), over: true }
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
          { title: WORDS.fill(:kernels_view_only, pid: process.pid),
            rows: [[:rss, process.rss_bytes, "RSS"],
                   *KERNELS.map { |name, text| [name, process.public_send(name), text] }] }
        end
      end
    end
  end
end
