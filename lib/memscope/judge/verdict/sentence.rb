# frozen_string_literal: true

require_relative "../../value/quantity"
require_relative "../../value/terms"

module Memscope
  class Verdict < Reading
    # What to do about growth in each layer; PID stands for the process.
    REMEDIES = {
      objects: "memscope heap --pid PID",
      native: "memscope profile --pid PID --backend=imports --seconds 30 --gc",
      free: "memscope purge --pid PID --dry-run",
      stacks: "memscope heap --pid PID --paths-to Thread # or Fiber",
      code: "memscope report --pid PID # its rows files, JIT code, Ruby internals; " \
            "code is loaded and compiled once",
      shared: "memscope report --pid PID --shared",
      unattributed: "memscope report --pid PID --mappings"
    }.freeze
    # What to do without a history.
    START = "Memscope::History.start # or MEMSCOPE_HISTORY=1 in the environment"
    private_constant :REMEDIES, :START

    # A verdict as one sentence with its numbers, as one would paste it into a ticket.
    #
    # @api private
    module Sentence
      extend Quantity

      LAYERS = { objects: "Ruby objects", native: "native memory", free: "free memory that is not returned",
                 stacks: "stacks", code: "code", shared: "shared memory",
                 unattributed: "memory of an unknown owner" }.freeze
      # The least share that is named.
      NAMED = 0.05
      # Most rows that are named while it is too early.
      MOST_ROWS = 3
      # Seconds that growth must have lasted before it is called a leak (MEMSCOPE_STANDING_HOURS).
      LASTING = 2 * 3600
      private_constant :NAMED, :MOST_ROWS, :LASTING

      class << self
        # @param verdict [Verdict]
        # @return [String]
        def of(verdict) = "#{send(verdict.kind, verdict)}."

        private

        def too_early(verdict)
          why = verdict.reasons.values_at(:verdict, :running, :extension).compact.first
          return "Not judged: #{why}" if why

          points, span, = verdict.evidence.values_at(:points, :span_seconds)
          seen = "#{counted(points, 'values')} over #{duration(span)}" if points > 1
          seen ||= points == 1 ? "one value so far" : "no value yet"
          "Too early to tell: #{seen}, #{needs(verdict)}#{meanwhile(verdict)}"
        end

        # Before the first judgement, the noise is unknown; the text then adds how long growth must last to be a leak.
        def needs(verdict)
          return "takes over a month to tell" unless verdict.needs_seconds

          called = "; growth is called a leak once it has lasted for #{duration(LASTING)}"
          ready = (verdict.at + verdict.needs_seconds).strftime(verdict.needs_seconds < 43_200 ? "%H:%M" : "%F %H:%M")
          "needs #{duration(verdict.needs_seconds)} more (until #{ready} UTC)" \
            "#{called unless verdict.detectable_bytes_per_hour}"
        end

        # What has changed so far, the largest change first; of RSS alone until the rows were sampled twice.
        def meanwhile(verdict)
          rows = (verdict.growth || { rss: verdict.evidence[:grown_bytes].to_i }).select do |_row, bytes|
            bytes.abs >= Quantity::MEBIBYTE
          end
          return if rows.empty?
          return "; meanwhile RSS changed by #{signed_mebibytes(rows[:rss])} MiB" unless verdict.growth

          named = rows.first(MOST_ROWS).map { |row, bytes| "#{Terms.series(row)} #{signed_mebibytes(bytes)}" }
          "; since #{verdict.growth_since.strftime('%H:%M')} UTC, RSS changed by " \
            "#{signed_mebibytes(verdict.growth.each_value.sum)} MiB: #{named.join(', ')}"
        end

        def steady(verdict)
          "Steady: RSS is #{size(verdict.evidence[:rss_bytes])}; growth above " \
            "#{per_hour(verdict.detectable_bytes_per_hour)} would show"
        end

        def filling(verdict)
          if verdict.unshared?
            return "Filling: RSS does not grow; " \
                   "#{size(verdict.evidence[:unshared_bytes])} that was shared with " \
                   "the parent has become private"
          end

          "Filling: RSS grew#{shares(verdict)}, and ends near " \
            "#{size(verdict.evidence[:ends_near_bytes])}"
        end

        def step(verdict)
          "Step: RSS grew by #{size(verdict.evidence[:step_bytes])} at " \
            "#{verdict.since.strftime('%F %H:%M')} UTC and stayed#{shares(verdict)}"
        end

        def leak(verdict)
          low, high = [verdict.bytes_per_hour_low, verdict.bytes_per_hour_high].map { |bytes| mebibytes(bytes) }
          "Leak of #{LAYERS[verdict.layer]}: +#{per_hour(verdict.bytes_per_hour)} " \
            "(#{low} to #{high}) for " \
            "#{duration(verdict.evidence[:lasting_seconds])}#{per_request(verdict)}#{shares(verdict)}#{eta(verdict)}"
        end

        def per_request(verdict)
          ", #{size(verdict.bytes_per_request)} per request" if verdict.bytes_per_request&.positive?
        end

        # Other processes may grow too, so that the limit is reached sooner.
        def eta(verdict)
          return unless verdict.eta_seconds

          most = verdict.eta_seconds_high ? "to #{duration(verdict.eta_seconds_high)}" : "or more"
          "; this alone reaches the limit of #{size(verdict.evidence[:limit_bytes])} " \
            "in #{duration(verdict.eta_seconds)} " \
            "(#{duration(verdict.eta_seconds_low)} #{most})"
        end

        def shares(verdict)
          named = verdict.shares.select { |_layer, share| share >= NAMED }.sort_by { |_layer, share| -share }
          parts = named.map { |layer, share| "#{format('%.0f %%', 100 * share)} #{LAYERS[layer]}" }
          " (#{parts.join(', ')})" unless parts.empty?
        end

        def per_hour(bytes) = "#{mebibytes(bytes)} MiB/h"
      end
    end
  end
end
