# frozen_string_literal: true

require_relative "page"

module Memscope
  module Web
    module Pages
      # The processes of a cluster, side by side.
      #
      # @api private
      class Workers < Page
        shows "Workers", :workers

        # @return [Memscope::Workers]
        def reading = @reading ||= read(:workers)

        # @return [Array<Symbol>] rows of the ledger that any of them has, the largest first
        def rows
          sums = Hash.new(0)
          reading.each { |worker| (worker.rows || {}).each { |id, bytes| sums[id.to_sym] += bytes } }
          sums.select { |_id, bytes| bytes.positive? }.keys.sort_by { |id| -sums[id] }.first(4)
        end

        # @return [String]
        def name(worker) = worker.index ? "Worker #{worker.index}" : { master: "Master" }.fetch(worker.role, "Process")

        # @return [Array(Float, Float)] private and shared memory, as shares of the largest worker's RSS
        def shares(worker)
          most = reading.filter_map(&:rss_bytes).max
          return [0.0, 0.0] unless most&.positive? && worker.rss_bytes

          own = worker.uss_bytes || worker.rss_bytes
          [own.fdiv(most), (worker.rss_bytes - own).fdiv(most)]
        end
      end
    end
  end
end
