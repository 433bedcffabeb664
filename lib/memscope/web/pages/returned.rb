# frozen_string_literal: true

require_relative "../../purge"
require_relative "../../report"
require_relative "../refusal"
require_relative "../relay"
require_relative "overview"

module Memscope
  module Web
    module Pages
      # What a purge of one process returned: the answer to its POST.
      #
      # @api private
      class Returned
        # Before and after, of one row.
        Change = Struct.new(:path, :before_bytes, :after_bytes, :returned_bytes)
        NAMES = Purge::LEVERS.to_h { |lever| [lever.name, lever] }.freeze
        ALL = "all"
        # Bytes: the least that is not 0.0 MiB.
        SHOWN = 52_429
        private_constant :NAMES, :ALL, :SHOWN

        class << self
          # @param form [Hash{String => Array<String>}] lever: names, or "all"; dry_run: "1" to predict only; worker:
          #   the index of one, or "all", which it is without
          # @param relay [Relay]
          # @return [Returned, ReturnedByWorkers]
          # @raise [Refusal]
          def pull(form, relay = Relay.new)
            levers = levers(form.fetch("lever", []))
            worker = form["worker"]&.last
            reading = relay.purge(levers, dry_run: form["dry_run"]&.last == "1", worker: worker)
            return ReturnedByWorkers.new(reading) if reading.is_a?(Purge::WorkerResults)

            new(reading, worker ? {} : form)
          rescue ArgumentError => e
            raise Refusal.new(400, "#{e.message.delete_prefix('Memscope.purge: ')}.")
          rescue Purge::Busy
            raise Refusal.new(409, "Another thread of this process purges or tunes; try again when it has finished.",
                              { "retry-after" => "1" })
          end

          private

          # None for all that this process has.
          def levers(given)
            unknown = given - NAMES.keys - [ALL]
            return given.include?(ALL) ? [] : NAMES.values_at(*given) if given.any? && unknown.empty?

            raise Refusal.new(400, "lever: given #{unknown.first.to_s[0, 20].inspect}, allowed: " \
                                   "#{[*NAMES.keys, ALL].join(', ')}.")
          end
        end

        # @return [Purge::Result]
        attr_reader :reading

        # @param reading [Purge::Result]
        # @param form [Hash{String => Array<String>}] pid: of the process whose page the button was on, where no other
        #   was asked for
        def initialize(reading, form)
          @reading = reading
          @asked_pid = form["pid"]&.last.to_s[/\A\d{1,10}\z/]&.to_i || reading.pid
        end

        # @return [String]
        def json = reading.to_json

        # @return [String]
        def text = Memscope::Report.render(reading, unicode: true)

        # @return [String]
        def title = "Returned"

        # @return [Symbol]
        def template = :returned

        # @return [Integer, nil] the process whose page the button was on, where another one of the cluster answered
        def other_pid = (@asked_pid unless @asked_pid == reading.pid)

        # @return [Array<Change>] rows that changed by what the page can show, the largest change first
        def changes
          before, after = [reading.before, reading.after].map { |ledger| by_path(ledger.rows) }
          reading.rows.select { |_path, bytes| bytes.abs >= SHOWN }
                 .map { |path, bytes| Change.new(path, before[path], after[path], bytes) }
        end

        # @return [Integer] what all others returned
        def rest_bytes = reading.rows.sum { |_path, bytes| bytes.abs >= SHOWN ? 0 : bytes }

        # @return [Hash{Symbol => String}] why a figure is missing or coarse, by lever
        def reasons
          { **reading.reasons, **reading.levers.select(&:reason).to_h { |lever| [lever.name, lever.reason] } }
        end

        private

        # At every depth: how deep a change is told depends on both ledgers.
        def by_path(rows, above = [])
          rows.reduce({}) do |paths, row|
            path = [*above, row.id]
            { **paths, path.join("/").to_sym => row.bytes, **by_path(row.children, path) }
          end
        end
      end
    end
  end
end
