# frozen_string_literal: true

require_relative "readings"

module Memscope
  module Web
    module Pages
      # The result of a purge of one process.
      #
      # @api private
      class Returned
        include Shown

        # Before and after, of one row.
        Change = Struct.new(:path, :before_bytes, :after_bytes, :returned_bytes)
        # Bytes: the least that is not 0.0 MiB.
        SHOWN = 52_429
        private_constant :SHOWN

        # @return [Purge::Result]
        attr_reader :reading

        # @param reading [Purge::Result]
        # @param asked_pid [Integer, nil] the process of the page that had the button; nil where one was chosen
        def initialize(reading, asked_pid)
          @reading = reading
          @asked_pid = asked_pid || reading.pid
        end

        # @return [Boolean] whether another process of the cluster served the request than the page with the button
        def other_process? = @asked_pid != reading.pid

        # @return [Array<Change>] rows whose change shows in MiB, the largest change first
        def changes
          # At every depth: the depth of a change depends on both ledgers.
          before, after = [reading.before, reading.after].map do |ledger|
            ledger.each_path.to_h { |path, row| [path, row.bytes] }
          end
          reading.rows.select { |_path, bytes| bytes.abs >= SHOWN }
                 .map { |path, bytes| Change.new(path, before[path], after[path], bytes) }
        end

        # @return [Integer] what all other rows returned
        def rest_bytes = reading.rows.sum { |_path, bytes| bytes.abs >= SHOWN ? 0 : bytes }

        # @return [Hash{Symbol => String}] why a figure is unavailable or approximate, by lever
        def reasons
          { **reading.reasons, **reading.levers.select(&:reason).to_h { |lever| [lever.name, lever.reason] } }
        end
      end

      # The result of a purge of several workers.
      #
      # @api private
      class ReturnedByWorkers
        include Shown

        # @return [Purge::WorkerResults]
        attr_reader :reading

        # @param reading [Purge::WorkerResults]
        def initialize(reading)
          @reading = reading
        end

        # @return [Array<Purge::WorkerResults::Part>] that purged
        def purged = reading.workers.select(&:result)
      end
    end
  end
end
