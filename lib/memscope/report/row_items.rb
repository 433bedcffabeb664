# frozen_string_literal: true

module Memscope
  class Report
    # What there is of a ledger's row, beside its bytes: "45,649 blocks", "text 2.8 MiB".
    module RowItems
      # Told elsewhere in the report, or in the JSON only.
      HIDDEN = %i[chunk_bytes in_use_bytes held_by_objects_bytes held_by_nobody_bytes].freeze
      private_constant :HIDDEN

      module_function

      # @param row [Ledger::Row]
      # @return [Array<String>]
      def of(row)
        unverified = "unverified" if row.check && !row.check.verified?
        detail = row.detail.except(*HIDDEN)
        trimmable = detail.delete(:trimmable_bytes)
        [*unverified, *trim(row, trimmable), *detail.filter_map { |name, value| item(name, value) }]
      end

      # On the rows whose memory it is; their sum is in the detail of malloc.
      def trim(row, bytes)
        "malloc_trim returns #{Quantity.size(bytes)}" if row.leaf? && bytes&.positive?
      end

      # Text stands for itself; a number or a list needs its name, and what is zero or empty is not worth one.
      def item(name, value)
        words = name.to_s.tr("_", " ")
        case value
        when String then value unless value.empty?
        when Integer then number(words, value) unless value.zero?
        when Float then "#{words} #{value}"
        when Array then Quantity.counted(value.size, words) unless value.empty?
        when true then words
        end
      end

      def number(words, value)
        return Quantity.counted(value, words) unless words.end_with?(" bytes")

        "#{words.delete_suffix(' bytes')} #{Quantity.size(value)}"
      end
      private_class_method :trim, :item, :number
    end
  end
end
