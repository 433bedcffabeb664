# frozen_string_literal: true

require_relative "../../process/ledger"

module Memscope
  module Purge
    # What one lever was predicted to return, and what it returned.
    class Lever < Record
      # @return [Symbol] one of Purge::LEVERS
      field :name, :symbol, null: false
      # @return [Integer, nil] the least resident memory that it was predicted to return
      field :predicted_bytes, :bytes
      # @return [Integer, nil] the most resident memory that it was predicted to return; equal to `predicted_bytes` if
      #   the prediction is exact
      field :predicted_max_bytes, :bytes
      # @return [Integer, nil] the least of the predicted memory that is on pages that no other process shares: what the
      #   machine gains; negative if the lever may write to shared pages, of which the process then gets its own copies
      field :predicted_private_bytes, :signed_bytes
      # @return [Integer, nil] the most of the predicted memory that is on such pages
      field :predicted_private_max_bytes, :signed_bytes
      # @return [Float, nil] for how many milliseconds it was predicted to stop all Ruby threads, to an order of
      #   magnitude; nil if it does not hold the GVL, or if that is unknown
      field :predicted_pause_ms, :number, sparse: true
      # @return [Integer, nil] fall of RSS from the ledger before the lever to the ledger after it, whatever caused the
      #   fall; negative if RSS rose, nil for a dry run
      field :returned_bytes, :signed_bytes
      # @return [Integer, nil] fall of USS, the memory that no other process shares, between the same ledgers: what the
      #   machine gained; nil for a dry run, and if the kernel hides which pages are shared
      field :returned_private_bytes, :signed_bytes
      # @return [Hash{Symbol => Integer}] fall of RSS by ledger row ("malloc/dirty"); unchanged rows are left out
      field :rows, :sizes, null: false
      # @return [Float, nil] duration of the lever, without the ledgers before and after it; nil for a dry run
      field :wall_ms, :number
      # @return [Boolean] whether the lever holds the GVL: no other Ruby thread runs meanwhile
      field :gvl?, :boolean, null: false
      # @return [String, nil] why the prediction is unknown or a range, or why nothing was done
      field :reason, :string

      # @return [Symbol] the lever's name
      def id = name

      # @return [Range<Integer>, nil] the bytes that it was predicted to return; nil if that is unknown
      def predicted = predicted_bytes && predicted_max_bytes && (predicted_bytes..predicted_max_bytes)

      # @return [Range<Integer>, nil] how many of the predicted bytes the machine gains; nil if that is unknown
      def predicted_private
        return unless predicted_private_bytes && predicted_private_max_bytes

        predicted_private_bytes..predicted_private_max_bytes
      end

      # @api private
      # @return [Range<Integer>, nil] what the machine gains, as predicted; if unknown, what the process returns
      def predicted_gain = predicted_private || predicted
    end

    # What a purge returned, by lever, and the ledgers before and after it.
    #
    #   result = Memscope.purge
    #   result.returned_bytes           # => 554827776
    #   result[:purge].returned_bytes   # => 554696704
    #   result.rows                     # => { "malloc/dirty": 554696704, … }
    class Result < Reading
      include Lookup

      # @return [String]
      def self.kind = "purge"

      # @return [Symbol] what serves malloc
      field :allocator, :symbol, null: false
      # @return [Boolean] whether the purge was only predicted
      field :dry_run?, :boolean, null: false
      # @return [Boolean, nil] whether a dry run finished a garbage collection that was under way, since what such a
      #   collection frees is unknown before it ends; nil unless a dry run looked for garbage
      field :finished_gc?, :boolean, sparse: true
      # @return [Integer, nil] bytes that unfollowed garbage may own, which are in the upper bounds of several levers,
      #   but return only once
      field :uncounted_bytes, :bytes, sparse: true
      # @return [Hash{Symbol => String}] the levers that a purge runs only if they are named, because they would stop
      #   Ruby for long or make shared memory private, each with the reason; a dry run predicts them. Empty if levers
      #   were named
      field :left_out, :sentences, null: false
      # @return [Array<Lever>] in the order in which they ran
      field :levers, [Lever], null: false
      parts_of :levers
      # @return [Integer, nil] fall of RSS from `before` to `after`; nil for a dry run
      field :returned_bytes, :signed_bytes
      # @return [Integer, nil] fall of USS, the memory that no other process shares, from `before` to `after`: what the
      #   machine gained. Pages that a forked process shares with its parent or siblings stay in memory for them. nil
      #   for a dry run, if the kernel hides which pages are shared, and while a child of memscope shares them all
      field :returned_private_bytes, :signed_bytes
      # @return [Hash{Symbol => Integer}] fall of RSS by the ledger row's path, as in Memscope.mappings; the rows sum to
      #   `returned_bytes`, and unchanged rows are left out
      field :rows, :sizes, null: false
      # @return [Ledger]
      field :before, Ledger, null: false
      # @return [Ledger, nil] nil for a dry run
      field :after, Ledger

      # @return [Integer, nil] what the machine gained; if that is unknown, the fall of RSS; nil for a dry run
      def gained_bytes = returned_private_bytes || returned_bytes

      # @api private
      # @return [Hash{Symbol => String}] why a figure is missing or approximate, also by lever
      def all_reasons
        own = levers.to_h { |lever| [lever.name, lever.reason] }.compact
        [left_out, own].reduce(reasons) { |all, more| all.merge(more) { |_name, *both| both.join("; ") } }
      end

      # @api private
      # @return [Array<Lever>] those whose predictions add up: without the levers that a purge leaves out, and without
      #   decay beside purge, which returns the same pages
      def counted
        levers.reject do |lever|
          left_out.key?(lever.name) || (lever.name == :decay && levers.any? { |other| other.name == :purge })
        end
      end

      # @return [Range<Integer>] sum of the predictions of the levers that run, without what two of them would both
      #   return; an unknown prediction counts as 0
      def predicted = sum_of(counted.filter_map(&:predicted))

      # @return [Range<Integer>, nil] sum of these levers' `predicted_private`; nil if that is unknown for a lever with
      #   a prediction
      def predicted_private
        known = counted.select(&:predicted_gain).map(&:predicted_private)
        sum_of(known) unless known.include?(nil)
      end

      private

      # No more than what is resident.
      def sum_of(ranges)
        repeated = (counted.map(&:name) & OF_GARBAGE).size - 1
        most = ranges.sum(&:end) - ((uncounted_bytes || 0) * [repeated, 0].max)
        least, most = [ranges.sum(&:begin), most].map { |bytes| [bytes, before.rss_bytes].compact.min }
        least..[most, least].max
      end
    end
  end
end
