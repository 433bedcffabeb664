# frozen_string_literal: true

require_relative "columns"
require_relative "reading_page"

module Memscope
  class Report
    # What a purge returned in each of several workers, one a line.
    class WorkerPurgesTable < ReadingPage
      private

      def title
        @page.joined(["memscope #{@reading.memscope}", "ruby #{@reading.ruby}",
                      "#{counted(purged.size, 'workers')} of #{@reading.workers.size}", "pid #{@reading.pid}"])
      end

      def sections = [sizes, outcome, whys]

      def explained = @reading.reasons.keys

      def purged = @reading.workers.select(&:result)

      def sizes
        headings = ["MiB", "pid", "before", *(%w[after returned] unless @reading.dry_run?), "predicted"]
        Columns.new(headings, @reading.workers.map { |part| cells(part) }).lines
      end

      def cells(part)
        result = part.result
        done = [result&.after&.rss_bytes, result&.returned_bytes].map { |bytes| cell(bytes) } unless @reading.dry_run?
        [part.index ? "worker #{part.index}" : "this", part.pid.to_s, cell(result&.before&.rss_bytes), *done,
         predicted(result)]
      end

      # What all levers return, as far as it can be said: those of which it is not known count for nothing.
      def predicted(result)
        return @page.unknown unless result

        bounds = %i[predicted_bytes predicted_max_bytes].map { |field| result.levers.filter_map(&field).sum }
        bounds.map { |bytes| mebibytes(bytes) }.uniq.join(" to ")
      end

      def outcome
        return ["  nothing was changed"] if @reading.dry_run?

        @reading.returned_bytes ? ["  #{mebibytes(@reading.returned_bytes)} MiB returned by all that answered"] : []
      end

      def whys
        @reading.workers.select(&:reason).map { |part| @page.wrapped("worker #{part.index}: #{part.reason}") }
      end
    end
  end
end
