# frozen_string_literal: true

require_relative "../../value/quantity"

module Memscope
  module Purge
    # What a lever that holds the GVL is predicted to do besides returning memory: for how many milliseconds it stops
    # Ruby, and how many bytes at most it writes to that other processes share, so that this process needs its own
    # copies. Either is nil if unknown.
    #
    # @api private
    Harm = Struct.new(:pause_ms, :unshared_bytes) do
      include Quantity

      # @param ledger [Ledger] read with `shared: true`
      # @return [Hash{Symbol => Harm}] by lever
      def self.of(ledger)
        pause = Native.gc_pause_ms
        shared = ledger.row(:ruby_heap)&.shared_bytes
        FULL_GCS.transform_values { |count| new(pause && (pause * count), shared) }
      end

      # @return [Boolean]
      def long? = pause_ms.nil? || pause_ms > LONGEST_PAUSE_MS

      # @return [Boolean] whether pages of Ruby's heap are shared: a forked worker's, or those of its parent. Nearly
      #   every page of the heap holds an object that a GC frees or ages, or that a compaction moves
      def unshares? = unshared_bytes.nil? || unshared_bytes >= Quantity::MEBIBYTE

      # @return [String, nil] why a purge that does not name the lever leaves it out; nil if it runs
      def left_out
        effects = [("stop Ruby for #{pause_ms ? "about #{pause(pause_ms)}" : 'an unknown time'}" if long?),
                   ("make #{unshared} private, which other processes share now" if unshares?)].compact
        "left out: it would #{effects.join(' and ')}; name it to run it" if effects.any?
      end

      private

      def unshared = unshared_bytes ? "up to #{size(unshared_bytes)}" : "an unknown amount of memory"
    end
    private_constant :Harm
  end
end
