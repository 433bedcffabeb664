# frozen_string_literal: true

require_relative "../value/collection"

module Memscope
  # Allocations of one size. A small class has slabs of several pages, each divided into regions; each allocation of a
  # large class has an extent of its own.
  class SizeClass < Record
    # @return [Symbol] :small or :large
    field :kind, :symbol, null: false, one_of: %i[small large]
    # @return [Integer] size of one allocation
    field :size_bytes, :bytes, identity: true
    alias id size_bytes
    # @return [Integer, nil] size of one slab; nil for a large class
    field :slab_bytes, :bytes, sparse: true
    # @return [Integer, nil] number of slabs
    field :slabs, :count, sparse: true
    # @return [Integer, nil] slabs with both used and free regions, not counting the one being filled
    field :partly_used_slabs, :count, sparse: true
    # @return [Integer, nil] regions per slab
    field :slab_regions, :count, sparse: true
    # @return [Integer, nil] number of bins that an arena has for this class
    field :shards, :count, sparse: true
    # @return [Integer, nil] regions of all slabs; extents of a large class
    field :regions, :count
    # @return [Integer, nil] allocated regions, those in thread caches included
    field :regions_in_use, :count
    # @return [Float, nil] regions in use as a share of all regions; nil without regions
    field :utilisation, :number
    # @return [Integer, nil] bytes of the regions in use; for large classes an upper bound if the reading's reasons say
    #   so (jemalloc 5.3.1)
    field :in_use_bytes, :bytes
    # @return [Integer, nil] bytes of the free regions: nothing returns them until their slabs are empty
    field :slack_bytes, :bytes
    # @return [Integer, nil] allocations by this arena, fills of thread caches included
    field :allocations, :count, counters: true
    # @return [Integer, nil] deallocations by this arena, flushes of thread caches included
    field :deallocations, :count, counters: true
    # @return [Integer, nil] requests by callers, including those that thread caches served
    field :requests, :count, counters: true
    # @return [Integer, nil] fills of thread caches
    field :cache_fills, :count, counters: true, sparse: true
    # @return [Integer, nil] flushes of thread caches
    field :cache_flushes, :count, counters: true, sparse: true
    # @return [Integer, nil] slabs created since the process began
    field :slabs_made, :count, counters: true, sparse: true
    # @return [Integer, nil] times that an existing slab became the one being filled
    field :slabs_reused, :count, counters: true, sparse: true

    class << self
      # @param body [Hash{Symbol => Object}] from the extension
      def capture(body)
        regions = body.key?(:extents) ? body.delete(:extents) : product(body[:slab_regions], body[:slabs])
        in_use = body.fetch(:regions_in_use, regions)
        free = regions && in_use && (regions - in_use)
        super({ **body, regions: regions, regions_in_use: in_use,
                        utilisation: (in_use.fdiv(regions) if free && regions.positive?),
                        in_use_bytes: product(in_use, body[:size_bytes]),
                        slack_bytes: product(free, body[:size_bytes]) })
      end

      private

      def product(left, right) = left && right && (left * right)
    end
  end

  # All size classes of the allocator, by size, used or not.
  #
  #   Memscope.size_classes.max_by(&:slack_bytes).size_bytes  # => 640
  class SizeClasses < Reading
    include Lookup

    # @return [Symbol] the allocator that serves malloc
    field :allocator, :symbol, null: false
    # @return [Integer, nil] the arena of these numbers; nil for all arenas together
    field :arena, :count
    # @return [Integer, nil] epoch of jemalloc for all these numbers
    field :epoch, :count
    # @return [Array<SizeClass>] by size; empty, with a reason, if the allocator has none
    collection :classes, [SizeClass]

    # (see Memscope.size_classes)
    def self.read(arena: nil)
      known = Native.arenas(true)[:arenas].map { |body| body[:index] } unless arena.nil?
      Field.choice(:arena, arena, [nil, *known], call: "Memscope.size_classes")
      capture(Native.size_classes(arena, arena.nil?))
    end

    # @return [Integer, nil] free regions of all slabs, in bytes; nil if there are no classes
    def slack_bytes = classes.any? ? sum { |size_class| size_class.slack_bytes || 0 } : nil

    # @api private
    # @return [Boolean] whether anything could be read
    def known? = classes.any?
  end
end
