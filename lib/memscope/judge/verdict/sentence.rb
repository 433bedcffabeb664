# frozen_string_literal: true

module Memscope
  class Verdict < Reading
    # A verdict as one sentence with its numbers, as one would paste it into a ticket.
    # @api private
    module Sentence
      extend Quantity

      WORDS = Words.beside(__FILE__)
      # The least share that is named.
      NAMED = 0.05
      # The maximum number of rows that are named while it is too early.
      MAX_ROWS = 3
      # Seconds that growth must have lasted before it is called a leak (MEMSCOPE_STANDING_HOURS).
      LASTING = 2 * 3600

      class << self
        def of(verdict) = send(verdict.kind, verdict)

        def layer(layer) = layer && WORDS[:"layer.#{layer}"]

        # @param layer [Symbol, nil] or :start, without a history; :compare, too early for a verdict
        # @return [String, nil] the remedy for growth in this layer of a process
        def remedy(layer, pid) = layer && WORDS.fill(:"remedy.#{layer}", pid: pid)

        private

        def too_early(verdict)
          why = verdict.reasons.values_at(:verdict, :running, :extension).compact.first
          return WORDS.fill(:not_judged, why: why) if why

          points, span = verdict.evidence.values_at(:points, :span_seconds)
          seen = { 0 => :no_value, 1 => :one_value }.fetch(points, :values)
          seen = WORDS.fill(seen, values: counted(points, "values"), time: span && duration(span))
          WORDS.fill(:too_early, seen: seen, needed: needed(verdict), meanwhile: meanwhile(verdict))
        end

        # Before the first judgement, the noise is unknown. The text then adds how long growth must last to be a leak.
        def needed(verdict)
          time = verdict.needs_seconds or return WORDS[:month_needed]

          ready = (verdict.at + time).strftime(time < 43_200 ? "%H:%M" : "%F %H:%M")
          WORDS.fill(verdict.detectable_bytes_per_hour ? :needed : :needed_and_lasting,
                     time: duration(time), until: ready, lasting: duration(LASTING))
        end

        # The changes so far, the largest first; only that of the RSS until the rows were sampled twice.
        def meanwhile(verdict)
          rows = (verdict.growth || { rss: verdict.evidence[:grown_bytes].to_i }).select do |_row, bytes|
            bytes.abs >= Quantity::MEBIBYTE
          end
          return if rows.empty?
          return WORDS.fill(:rss_changed, change: signed_mebibytes(rows[:rss])) unless verdict.growth

          named = rows.first(MAX_ROWS).map { |row, bytes| "#{Terms.series(row)} #{signed_mebibytes(bytes)}" }
          WORDS.fill(:rows_changed, since: verdict.growth_since.strftime("%H:%M"), rows: named.join(", "),
                                    change: signed_mebibytes(verdict.growth.each_value.sum))
        end

        def steady(verdict)
          WORDS.fill(:steady, rss: size(verdict.evidence[:rss_bytes]),
                              rate: per_hour(verdict.detectable_bytes_per_hour))
        end

        def filling(verdict)
          return WORDS.fill(:unshared, bytes: size(verdict.evidence[:unshared_bytes])) if verdict.unshared?

          WORDS.fill(:filling, shares: shares(verdict), end: size(verdict.evidence[:ends_near_bytes]))
        end

        def step(verdict)
          WORDS.fill(:step, bytes: size(verdict.evidence[:step_bytes]), at: verdict.since.strftime("%F %H:%M"),
                            shares: shares(verdict))
        end

        def leak(verdict)
          bytes = verdict.bytes_per_request
          per_request = WORDS.fill(:per_request, bytes: size(bytes)) if bytes&.positive?
          low, high = [verdict.bytes_per_hour_low, verdict.bytes_per_hour_high].map { |bytes| mebibytes(bytes) }
          WORDS.fill(:leak, layer: layer(verdict.layer), rate: per_hour(verdict.bytes_per_hour), low: low, high: high,
                            time: duration(verdict.evidence[:lasting_seconds]), per_request: per_request,
                            shares: shares(verdict), limit: limit(verdict))
        end

        # Other processes may grow too, so that the limit is reached sooner.
        def limit(verdict)
          return unless verdict.eta_seconds

          most = verdict.eta_seconds_high
          WORDS.fill(most ? :limit_between : :limit_or_more, limit: size(verdict.evidence[:limit_bytes]),
                                                             time: duration(verdict.eta_seconds),
                                                             least: duration(verdict.eta_seconds_low),
                                                             most: most && duration(most))
        end

        def shares(verdict)
          named = verdict.shares.select { |_layer, share| share >= NAMED }.sort_by { |_layer, share| -share }
          parts = named.map { |name, share| "#{format('%.0f %%', 100 * share)} #{layer(name)}" }
          " (#{parts.join(', ')})" unless parts.empty?
        end

        def per_hour(bytes) = "#{mebibytes(bytes)} MiB/h"
      end
    end
  end
end
