# frozen_string_literal: true

require_relative "../allocator"
require_relative "kept"

module Memscope
  module Metrics
    # What one collection of families reads: each source at most once, and none above tier T1 but at the interval that
    # the configuration sets.
    #
    # @api private
    class Readings
      ALLOCATOR = Kept.new
      LEDGER = Kept.new
      ARENAS = Kept.new
      private_constant :ALLOCATOR, :LEDGER, :ARENAS

      # @return [Hash{Symbol => Reading}] what has been read so far
      attr_reader :taken

      # @param configuration [#metrics_ledger_interval_seconds, #metrics_arenas]
      def initialize(configuration)
        @configuration = configuration
        @taken = {}
      end

      # @param source [Symbol] a method of this class
      # @return [Reading, Hash, nil] nil where it is not to be read
      def [](source)
        return taken if source == :taken
        return @taken[source] if @taken.key?(source)

        reading = public_send(source)
        @taken[source] = reading if reading
        reading
      end

      # @return [Numeric, nil] seconds
      def interval = @configuration.metrics_ledger_interval_seconds

      # Tier T1.
      def snapshot = Memscope.snapshot

      # Tier T0, and the same for as long as the process lives.
      def allocator = ALLOCATOR.fetch(Float::INFINITY) { Memscope.allocator }

      # Tier T1.
      def cgroup = Memscope.cgroup

      # Tier T2, so at the interval, or not at all.
      def ledger = interval && LEDGER.fetch(interval) { Memscope.ledger }

      # Tier T1 under jemalloc. Elsewhere T2, so at the interval, or not at all.
      def arenas
        return unless @configuration.metrics_arenas
        return Memscope.arenas if self[:allocator].name == :jemalloc

        interval && ARENAS.fetch(interval) { Memscope.arenas }
      end
    end
  end
end
