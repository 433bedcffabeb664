# frozen_string_literal: true

module Memscope
  class Report
    # Mappings with resident memory, one a line: KiB of address space, KiB resident, permissions, address, what it is,
    # and under it the rows that own it where there are several.
    class MappingsTable
      include Quantity

      # @param mappings [Mappings]
      def initialize(mappings, **)
        @mappings = mappings
      end

      # @return [String]
      def to_s
        resident = @mappings.reject { |mapping| mapping.resident_bytes.zero? }
        lines = [line("KiB", "resident", "", "address", "row"), *resident.flat_map { |mapping| rows(mapping) },
                 line(kibibytes(resident.sum(&:size_bytes)), kibibytes(resident.sum(&:resident_bytes)), "",
                      counted(resident.size, "mappings"), "")]
        lines.map { |text| "#{text}\n" }.join
      end

      private

      def rows(mapping)
        ((first, _bytes), *others) = mapping.rows.sort_by { |_path, bytes| -bytes }
        owner = [first, File.basename(mapping.name)].reject(&:empty?).join("  ")
        [line(kibibytes(mapping.size_bytes), kibibytes(mapping.resident_bytes), mapping.permissions,
              mapping.start.to_s(16), owner),
         *others.map { |path, bytes| line("", "#{kibibytes(bytes)} of it", "", "", path.to_s) }]
      end

      def line(size, resident, permissions, address, row)
        "#{size.rjust(11)} #{resident.rjust(12)}  #{permissions.ljust(4)}  #{address.ljust(14)}  #{row}"[0, 80].rstrip
      end

      def kibibytes(bytes) = count(bytes / 1024)
    end
  end
end
