# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # One mapping of the process, and the ledger rows that own its resident memory.
  class Mapping < Record
    # @return [Integer] size of the address range
    def size_bytes = self.end - start
  end

  # Every mapping of the process by address, with the rows that own it: a pmap by owner.
  #
  #   Memscope.mappings.max_by(&:resident_bytes).rows  # => {:"malloc/main_heap" => 547356672}
  class Mappings < Reading
    include Collection

    # (see Memscope.mappings)
    def self.read(native: Native) = capture(native.mappings)
  end
end
