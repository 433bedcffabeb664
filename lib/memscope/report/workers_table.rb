# frozen_string_literal: true

require_relative "columns"
require_relative "reading_page"

module Memscope
  class Report
    # Processes of a server, one a line: what each costs, what it shares, how it grows; then the largest of their rows.
    class WorkersTable < ReadingPage
      SIZES = { "RSS" => :rss_bytes, "PSS" => :pss_bytes, "USS" => :uss_bytes, "shared" => :shared_bytes,
                "unshared" => :unshared_since_fork_bytes }.freeze
      # How many rows are told; the others are one column.
      ROWS = 5
      # What the table's own dashes say.
      UNTOLD = %i[rss_bytes_per_hour unshared_since_fork_bytes].freeze
      private_constant :SIZES, :ROWS, :UNTOLD

      private

      def title
        @page.joined(["memscope #{@reading.memscope}", "ruby #{@reading.ruby}", *size_of_cluster,
                      "pid #{@reading.pid}"])
      end

      def size_of_cluster
        number = @reading.count { |worker| worker.role == :worker }
        number.zero? ? [] : [counted(number, "workers")]
      end

      def sections = [sizes, rows, legend, [*old, *whys]]

      def explained = @reading.reasons.keys

      def sizes
        headings = ["MiB", "pid", *SIZES.keys, "an hour", "up"]
        lines = @reading.map { |worker| size_cells(worker) }
        lines << ["all", "", "", cell(@reading.pss_bytes), cell(@reading.uss_bytes), "", "", "", ""] if many?
        Columns.new(headings, lines).lines
      end

      def many? = @reading.count > 1

      def size_cells(worker)
        [name(worker), worker.pid.to_s, *SIZES.values.map { |field| cell(worker.public_send(field)) },
         slope(worker.rss_bytes_per_hour), up(worker)]
      end

      def name(worker)
        return worker.role == :master ? "master" : "this" unless worker.index

        "worker #{worker.index}"
      end

      def slope(bytes) = bytes ? "#{'+' if bytes.positive?}#{mebibytes(bytes)}" : @page.unknown

      def up(worker)
        return @page.unknown unless worker.booted_at

        minutes, seconds = (@reading.at - worker.booted_at).to_i.clamp(0, nil).divmod(60)
        return "#{seconds} s" if minutes.zero?

        minutes < 120 ? "#{minutes} min" : "#{count(minutes / 60)} h"
      end

      def rows
        known = @reading.select(&:rows)
        return [] if known.empty?

        largest = largest(known.map(&:rows))

        headings = ["MiB", *largest.map { |id| id.name.tr("_", " ") }, "others", "= RSS"]
        Columns.new(headings, known.map { |worker| row_cells(worker, largest) }).lines
      end

      # The ids of those that hold most in all processes together.
      def largest(rows)
        rows.reduce do |sums, more|
          sums.merge(more) do |_id, sum, bytes|
            sum + bytes
          end
        end.max_by(ROWS, &:last).map(&:first)
      end

      def row_cells(worker, largest)
        own = largest.map { |id| worker.rows.fetch(id, 0) }
        sum = worker.ledger_rss_bytes
        [name(worker), *[*own, sum - own.sum, sum].map { |bytes| mebibytes(bytes) }]
      end

      def legend
        return [] unless many?

        [@page.wrapped("PSS counts a page that processes share once among them: it sums to what all of them use. " \
                       "unshared: shared with the parent just behind the fork, and no longer.")]
      end

      # Of a phase that a restart is about to end.
      def old
        newest = @reading.filter_map(&:phase).max
        @reading.select { |worker| worker.phase && worker.phase < newest }.map do |worker|
          @page.wrapped("#{name(worker)}, pid #{worker.pid}: of phase #{worker.phase}, not #{newest}")
        end
      end

      def whys
        @reading.flat_map do |worker|
          worker.reasons.except(*UNTOLD).map { |id, why| @page.wrapped("#{name(worker)}: #{id}: #{why}") }
        end
      end
    end
  end
end
