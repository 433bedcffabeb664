# frozen_string_literal: true

module Memscope
  class GrowthCheck < Reading
    # Counts what is alive and in use, with as little Ruby code as can be: YJIT takes blocks of malloc for each method
    # that it compiles.
    #
    # @api private
    module Counts
      # Rows of a ledger whose blocks are in use, under glibc.
      HEAPS = %i[main_heap arenas].freeze
      private_constant :HEAPS

      class << self
        # @return [Hash{String => Integer}] objects by class, garbage included, as a census names them
        # @raise [Unavailable]
        def objects
          body = Native.census(false, nil)
          return body[:classes].to_h { |row| [-row[:name], row[:count]] } if body[:total_count]

          raise Unavailable, "objects cannot be counted: #{Reasons.sentences(body[:reasons]).values.join('; ')}"
        end

        # @return [Integer, nil] blocks of malloc; nil if this allocator does not say
        def blocks
          Native.run_lever(:tcache, nil) # what jemalloc keeps for this thread counts as allocated
          blocks_of_jemalloc || blocks_of_glibc
        end

        private

        def blocks_of_jemalloc
          totals = Native.snapshot(false)[:jemalloc] or return
          totals[:small_nmalloc] + totals[:large_nmalloc] - totals[:small_ndalloc] - totals[:large_ndalloc]
        end

        def blocks_of_glibc
          malloc = Native.ledger(true, false, false, false)[:rows].find { |row| row[:id] == :malloc } or return
          counts = malloc[:children].map do |row|
            row = row[:children].find { |part| part[:id] == :in_use } if HEAPS.include?(row[:id])
            row&.dig(:detail, :blocks)
          end
          counts.sum if counts.any? && counts.all?
        end
      end
    end
    private_constant :Counts
  end
end
