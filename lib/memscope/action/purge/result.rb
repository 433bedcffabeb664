# frozen_string_literal: true

module Memscope
  module Purge
    Record.declare(__FILE__)

    # The predicted and the returned memory of one lever.
    class Lever < Record
      # @return [Symbol] the lever's name
      def id = name

      # @return [Range<Integer>, nil] the bytes that it was predicted to return; nil if that is unknown
      def predicted = bounds(predicted_bytes, predicted_max_bytes)

      # @return [Range<Integer>, nil] how many of the predicted bytes the machine gains; nil if that is unknown
      def predicted_private = bounds(predicted_private_bytes, predicted_private_max_bytes)

      # @api private
      # @return [Range<Integer>, nil] the machine's predicted gain; if that is unknown, the process's predicted fall
      def predicted_gain = predicted_private || predicted

      private

      def bounds(least, most) = (least..most if least && most)
    end

    # The memory that a purge returned, by lever, and the ledgers before and after it.
    #
    #   result = Memscope.purge
    #   result.returned_bytes           # => 554827776
    #   result[:purge].returned_bytes   # => 554696704
    #   result.rows                     # => { "malloc/dirty": 554696704, … }
    class Result < Reading
      include Lookup

      # @return [String]
      def self.kind = "purge"

      # @api private
      # @return [Hash{Symbol => String}] why a figure is missing or approximate, also by lever
      def all_reasons
        own = levers.to_h { |lever| [lever.name, lever.reason] }.compact
        named = left_out.transform_values { |reason| "#{reason}. #{WORDS[:run_by_name]}" }
        [named, own].reduce(reasons) { |all, more| all.merge(more) { |_name, *both| both.join("; ") } }
      end

      # @api private
      # @return [Array<Lever>] those whose predictions add up: without the levers that a purge leaves out, and without
      #   decay beside purge, which returns the same pages
      def counted
        levers.reject do |lever|
          left_out.key?(lever.name) || (lever.name == :decay && levers.any? { |other| other.name == :purge })
        end
      end

      # @return [Range<Integer>] sum of the predictions of the levers that run, without the bytes that two of them would
      #   both return; an unknown prediction counts as 0
      def predicted = sum_of(counted.filter_map(&:predicted))

      # @return [Range<Integer>, nil] sum of the counted levers' `predicted_private`; nil if it is unknown for one of
      #   them that has a prediction
      def predicted_private
        known = counted.select(&:predicted_gain).map(&:predicted_private)
        sum_of(known) unless known.include?(nil)
      end

      private

      # At most the resident bytes.
      def sum_of(ranges)
        repeated = (counted.map(&:name) & OF_GARBAGE).size - 1
        most = ranges.sum(&:end) - ((uncounted_bytes || 0) * [repeated, 0].max)
        least, most = [ranges.sum(&:begin), most].map { |bytes| [bytes, before.rss_bytes].compact.min }
        least..[most, least].max
      end
    end
  end
end
