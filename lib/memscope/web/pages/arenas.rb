# frozen_string_literal: true

require_relative "../../report"
require_relative "page"

module Memscope
  module Web
    module Pages
      # The allocator's arenas.
      #
      # @api private
      class Arenas < Page
        shows "Arenas", :arenas

        JEMALLOC = { "Allocated" => :allocated_bytes, "Active" => :active_bytes, "Dirty" => :dirty_bytes,
                     "Muzzy" => :muzzy_bytes, "Metadata" => :metadata_bytes, "Thread caches" => :tcache_bytes,
                     "Retained" => :retained_bytes }.freeze
        GLIBC = { "Allocated" => :allocated_bytes, "Free" => :free_bytes, "Fast bins" => :fast_bytes,
                  "From the system" => :system_bytes, "At most" => :system_max_bytes }.freeze
        private_constant :JEMALLOC, :GLIBC

        # @return [Memscope::Arenas]
        def reading = @reading ||= read(:arenas)

        # @return [String]
        def text = Memscope::Report.render(reading, unicode: true)

        # @return [Boolean]
        def jemalloc? = reading.allocator == :jemalloc

        # @return [Hash{String => Symbol}] headings, and the fields below them
        def columns = jemalloc? ? JEMALLOC : GLIBC

        # @return [Array<Arena>] all, and their sum
        def rows = [*reading, reading.merged]

        # @return [String]
        def name(arena)
          return "All" unless arena.index

          !jemalloc? && arena.index.zero? ? "Main" : "#{'Huge ' if arena.huge?}#{arena.index}"
        end

        # @return [Array(Float, Float)] in use and held, as shares of the largest arena
        def shares(arena)
          used = arena.allocated_bytes || 0
          most = reading.map { |one| whole(one) }.max || 0
          most.zero? ? [0.0, 0.0] : [used.fdiv(most), [whole(arena) - used, 0].max.fdiv(most)]
        end

        private

        def whole(arena)
          parts = jemalloc? ? %i[active_bytes dirty_bytes muzzy_bytes] : %i[system_bytes]
          parts.sum { |field| arena.public_send(field) || 0 }
        end
      end
    end
  end
end
