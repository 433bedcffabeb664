# frozen_string_literal: true

require_relative "../value/collection"

module Memscope
  # One mapping of the process, and the ledger rows that own its resident memory.
  class Mapping < Record
    # @return [Integer] first address
    field :start, :count, null: false
    # @return [Integer] one past the last address
    field :end, :count, null: false
    # @return [Integer] resident memory of the mapping: the sum of `rows`
    field :resident_bytes, :bytes, null: false
    # @return [String] as /proc/self/maps has them: "rw-p"
    field :permissions, :string, null: false
    # @return [String] the file's path, "[heap]", "[stack]", or empty
    field :name, :string, null: false
    # @return [Hash{Symbol => Integer}] resident bytes by row: :ruby_heap, :"malloc/main_heap", …
    field :rows, :sizes, null: false

    # @return [Integer] size of the address range
    def size_bytes = self.end - start
  end

  # Every mapping of the process by address, with the rows that own it: a pmap by owner.
  #
  #   Memscope.mappings.max_by(&:resident_bytes).rows  # => {:"malloc/main_heap" => 547356672}
  class Mappings < Reading
    # @return [Integer, nil] resident memory that this scan saw: the sum of the mappings and `unmapped_bytes`
    field :rss_bytes, :bytes
    # @return [Symbol] where the scan took residency from: :pagemap_scan, :pagemap, :smaps, or :none
    field :source, :symbol, null: false, one_of: %i[pagemap_scan pagemap smaps none]
    # @return [Integer, nil] resident memory outside of the listed mappings: mapped during the reading
    field :unmapped_bytes, :bytes
    # @return [Array<Mapping>] by address
    collection :mappings, [Mapping]

    # (see Memscope.mappings)
    def self.read = capture(Native.mappings)
  end
end
