# frozen_string_literal: true

# At once, not when first used: the reader's thread is stopped at any moment, and RubyGems complains of a thread that
# ends while it requires.
require_relative "../../client"
require_relative "../../remote/external_process"
require_relative "../../purge"
require_relative "../processes"

module Memscope
  module CLI
    module Top
      # What is shown at one moment: rows of [id, bytes, text], the first their sum or their frame.
      Frame = Struct.new(:title, :rows, :note, :moment, keyword_init: true) do
        # @return [Frame]
        def with(**changes) = dup.tap { |copy| changes.each { |name, value| copy[name] = value } }
      end

      # Where frames come from. Nothing here raises: what goes wrong is the frame's note.
      class Source
        # @param client [Client]
        # @return [Source]
        def self.of_process(client) = OfProcess.new(client)

        # @return [Source]
        def self.of_all = OfAll.new

        def initialize
          @frame = Frame.new(title: "memscope top", rows: [])
        end

        # @return [Boolean] whether nothing will change any more
        def over? = false

        # @return [Frame]
        def read
          @frame = Frame.new(note: @said, **look, moment: Process.clock_gettime(Process::CLOCK_MONOTONIC))
        rescue Client::Unreachable, Client::Failed, SystemCallError => e
          @frame = @frame.with(note: e.message)
        end

        private

        # Stays on the screen.
        def say(text)
          @said = text
          @frame = @frame.with(note: text)
        end

        # All processes, by their size.
        class OfAll < Source
          # @return [Frame]
          def carry_out(_order) = say("p and g are for one process: memscope top --pid N")

          private

          def look
            entries = Processes.read
            rows = entries.map do |entry|
              outside = entry.outside
              words = [outside.pid.to_s.rjust(7), entry.malloc_text.to_s.ljust(9), outside.command]
              [outside.pid, outside.rss_bytes, words.join(" ")]
            end
            { title: "#{entries.size} Ruby process#{'es' unless entries.one?}, by RSS", rows: rows }
          end
        end

        # The rows of one process's ledger; of one that does not listen, what the kernel tells.
        class OfProcess < Source
          include Memscope::Report::Quantity

          LEVERS = { purge: [], gc: ["gc"] }.freeze
          KERNELS = { anonymous_bytes: "without a file: heaps and stacks", file_bytes: "of files",
                      shared_memory_bytes: "shared memory" }.freeze
          private_constant :LEVERS, :KERNELS

          # @param client [Client]
          def initialize(client)
            super()
            @client = client
          end

          # @return [Boolean] whether the process is gone
          def over? = @over || false

          # @param order [Symbol] of LEVERS
          # @return [Frame]
          def carry_out(order)
            result = @client.call(:purge, levers: LEVERS.fetch(order))
            took = result.levers.sum(&:wall_ms)
            read
            say("#{order} returned #{size(result.returned_bytes || 0)} in #{took.round} ms, " \
                "at #{Time.now.strftime('%H:%M:%S')}")
          rescue Client::Unreachable, Client::Failed, Purge::Busy, ArgumentError => e
            say(e.message)
          end

          private

          def look
            ledger = @client.call(:ledger)
            { title: "pid #{ledger.pid} ruby #{ledger.ruby} #{ledger.allocator.name} serves malloc",
              rows: [[:rss, ledger.rss_bytes, "RSS"], *leaves(ledger.rows).sort_by { |row| [-row[1], row[0]] }] }
          rescue Client::Unreachable => e
            return from_outside if e.why == :silent

            @over = e.why == :gone
            raise unless @over

            { **@frame.to_h.slice(:title, :rows), note: "#{e.message} any more: these are its last numbers" }
          end

          def leaves(rows, above = [])
            rows.flat_map do |row|
              path = [*above, row.label]
              row.leaf? ? [[path.join("/"), row.bytes, path.join(" / ")]] : leaves(row.children, path)
            end
          end

          def from_outside
            outside = ExternalProcess.read(@client.pid, cgroup: false)
            { title: "pid #{outside.pid} seen from outside: it does not listen",
              rows: [[:rss, outside.rss_bytes, "RSS"],
                     *KERNELS.map { |name, text| [name, outside.public_send(name), text] }] }
          end
        end
        private_constant :OfAll, :OfProcess
      end
    end
  end
end
