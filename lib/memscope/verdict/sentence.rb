# frozen_string_literal: true

require_relative "../report/quantity"

module Memscope
  class Verdict < Reading
    # What to do about growth in each layer; PID stands for the process.
    REMEDIES = {
      objects: "memscope heap --pid PID\nmemscope profile --pid PID --objects",
      native: "memscope profile --pid PID --backend=imports --seconds 30",
      fragmentation: "memscope purge --pid PID --dry-run",
      threads: "memscope report --pid PID # its row stacks; in the program, Thread.list names the threads",
      code: "memscope report --pid PID # its rows files, JIT code, Ruby internals; code is loaded and compiled once",
      copy_on_write: "nothing to do: pages that were shared after the fork become private when a process writes to " \
                     "them; what is loaded before the fork and not changed stays shared",
      unattributed: "memscope report --pid PID"
    }.freeze
    # What to do without a history.
    START = "Memscope::History.start # or MEMSCOPE_HISTORY=1 in the environment"
    private_constant :REMEDIES, :START

    # A verdict as one sentence with its numbers, as one would paste it into a ticket.
    #
    # @api private
    module Sentence
      extend Report::Quantity

      LAYERS = { objects: "Ruby objects", native: "native memory", fragmentation: "free memory that is not returned",
                 threads: "stacks of threads", code: "code", copy_on_write: "pages shared with the parent",
                 unattributed: "memory of an unknown owner" }.freeze
      # The least share that is named.
      NAMED = 0.05
      # Seconds that growth must have lasted before it is called a leak (MEMSCOPE_STANDING_HOURS).
      LASTING = 2 * 3600
      private_constant :NAMED, :LASTING

      class << self
        # @param verdict [Verdict]
        # @return [String]
        def of(verdict) = "#{send(verdict.kind, verdict)}."

        # @param seconds [Numeric]
        # @return [String] "45 minutes"
        def duration(seconds)
          length, unit = { 86_400 => "days", 3600 => "hours", 60 => "minutes" }.find { |one, _| seconds >= 2 * one } ||
                         [1, "seconds"]
          counted((seconds / length.to_f).round, unit)
        end

        private

        def insufficient(verdict)
          why = verdict.reasons.values_at(:verdict, :running).compact.first
          return "Not judged: #{why}" if why

          points, span, = verdict.evidence.values_at(:points, :span_seconds)
          seen = "#{counted(points, 'values')} over #{duration(span)}" if points > 1
          seen ||= points == 1 ? "one value so far" : "no value yet"
          "Too early to tell: #{seen}, #{needs(verdict)}"
        end

        # Before the first judgement, the noise is unknown; the text then adds how long growth must last to be a leak.
        def needs(verdict)
          return "takes over a month to tell" unless verdict.needs_seconds

          called = "; growth is called a leak once it has lasted for #{duration(LASTING)}"
          ready = (verdict.at + verdict.needs_seconds).strftime(verdict.needs_seconds < 43_200 ? "%H:%M" : "%F %H:%M")
          "needs #{duration(verdict.needs_seconds)} more (until #{ready} UTC)" \
            "#{called unless verdict.detectable_bytes_per_hour}"
        end

        def steady(verdict)
          "Steady: RSS is #{size(verdict.evidence[:rss_bytes])}; growth above " \
            "#{per_hour(verdict.detectable_bytes_per_hour)} would show"
        end

        def plateau(verdict)
          if verdict.layer == :copy_on_write
            return "Plateau: RSS does not grow; pages that were shared with the parent have become private"
          end

          "Plateau: RSS grew#{shares(verdict)}, and ends near #{size(verdict.evidence[:ends_near_bytes])}"
        end

        def step(verdict)
          "Step: RSS grew by #{size(verdict.evidence[:step_bytes])} at #{verdict.since.strftime('%F %H:%M')} UTC and " \
            "stayed#{shares(verdict)}"
        end

        def leak(verdict)
          low, high = [verdict.bytes_per_hour_low, verdict.bytes_per_hour_high].map { |bytes| mebibytes(bytes) }
          "Leak of #{LAYERS[verdict.layer]}: +#{per_hour(verdict.bytes_per_hour)} (#{low} to #{high}) for " \
            "#{duration(verdict.evidence[:lasting_seconds])}#{per_request(verdict)}#{shares(verdict)}#{eta(verdict)}"
        end

        def per_request(verdict)
          ", #{size(verdict.bytes_per_request)} per request" if verdict.bytes_per_request&.positive?
        end

        # Other processes may grow too, so that the limit is reached sooner.
        def eta(verdict)
          return unless verdict.eta_seconds

          most = verdict.eta_seconds_high ? "to #{duration(verdict.eta_seconds_high)}" : "or more"
          "; this alone reaches the limit of #{size(verdict.evidence[:limit_bytes])} in " \
            "#{duration(verdict.eta_seconds)} (#{duration(verdict.eta_seconds_low)} #{most})"
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
