# frozen_string_literal: true

require "json"

module Memscope
  class History < Reading
    # A history in the Trace Event Format, which Perfetto (ui.perfetto.dev) and Chrome's tracing draw: a counter track
    # for each series, and its events as marks.
    #
    # @api private
    module Trace
      # Microseconds in a second.
      SECOND = 1_000_000
      private_constant :SECOND

      class << self
        # @param history [History]
        # @return [String] JSON
        def of(history)
          events = history.curves.flat_map { |curve| counters(curve) } + history.events.map { |event| mark(event) }
          events.each { |event| event[:pid] = history.pid }
          JSON.generate(traceEvents: [title(history), *events], displayTimeUnit: "ms")
        end

        private

        def title(history)
          { ph: "M", name: "process_name", pid: history.pid, args: { name: "memscope: process #{history.pid}" } }
        end

        def counters(curve)
          samples(curve.rings).map do |point|
            { ph: "C", name: curve.id, ts: microseconds(point.at), args: { curve.unit => point.last } }
          end
        end

        # The samples of all rings; from a coarser ring, only those that are older than all samples of finer rings.
        def samples(rings)
          rings.inject([]) do |later, ring|
            points = ring.points(0).select(&:last)
            points = points.take_while { |point| point.at + ring.step_seconds <= later.first.at } if later.any?
            points + later
          end
        end

        def mark(event) = { ph: "i", s: "p", name: event.kind, ts: microseconds(event.at) }

        def microseconds(time) = (time.to_r * SECOND).to_i
      end
    end
    private_constant :Trace
  end
end
