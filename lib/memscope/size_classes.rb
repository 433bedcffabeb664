# frozen_string_literal: true

require_relative "native"
require_relative "reading"

module Memscope
  # What an allocator holds of one size. A small class lies in slabs of several pages, each cut into regions; a large
  # one in extents of its own.
  class SizeClass < Record
    # @return [Symbol] :small or :large
    field :kind, :symbol, null: false, one_of: %i[small large]
    # @return [Integer] of one allocation
    field :size_bytes, :bytes
    # @return [Integer, nil] of one slab; nil where the class is large
    field :slab_bytes, :bytes, sparse: true
    # @return [Integer, nil] that there are
    field :slabs, :count, sparse: true
    # @return [Integer, nil] with regions in use and free ones, the slab being filled not counted
    field :partly_used_slabs, :count, sparse: true
    # @return [Integer, nil] regions of one slab
    field :slab_regions, :count, sparse: true
    # @return [Integer, nil] bins that an arena has for this class
    field :shards, :count, sparse: true
    # @return [Integer, nil] regions of all slabs; extents where the class is large
    field :regions, :count
    # @return [Integer, nil] given out or in thread caches
    field :regions_in_use, :count
    # @return [Float, nil] regions in use of all; nil without slabs
    field :utilisation, :number
    # @return [Integer, nil] of these; an upper bound for large classes where the reading's reasons say so (5.3.1)
    field :in_use_bytes, :bytes
    # @return [Integer, nil] free regions: nothing returns them until their slabs are empty
    field :slack_bytes, :bytes
    # @return [Integer, nil] by this arena, thread caches filled included
    field :allocations, :count, counters: true
    # @return [Integer, nil] likewise
    field :deallocations, :count, counters: true
    # @return [Integer, nil] by callers, served from thread caches included
    field :requests, :count, counters: true
    # @return [Integer, nil] of thread caches
    field :cache_fills, :count, counters: true, sparse: true
    # @return [Integer, nil] of thread caches
    field :cache_flushes, :count, counters: true, sparse: true
    # @return [Integer, nil] since the process began
    field :slabs_made, :count, counters: true, sparse: true
    # @return [Integer, nil] as the slab being filled
    field :slabs_reused, :count, counters: true, sparse: true

    class << self
      # @return [Symbol] the field that tells it from others of a list
      def identity = :size_bytes

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

  # The allocator's size classes, by size; all that there are, used or not.
  #
  #   Memscope.size_classes.max_by(&:slack_bytes).size_bytes  # => 640
  class SizeClasses < Reading
    # @return [Symbol] what serves malloc
    field :allocator, :symbol, null: false
    # @return [Integer, nil] the arena they are of; nil for all together
    field :arena, :count
    # @return [Integer, nil] jemalloc's, of all these numbers
    field :epoch, :count
    # @return [Array<SizeClass>] by size; empty, with a reason, where the allocator has none
    collection :classes, [SizeClass], counters: SizeClass.counters

    # What Memscope.size_classes does.
    #
    # @param arena [Integer, nil]
    # @return [SizeClasses]
    # @raise [ArgumentError] unless `arena` is nil or the index of an arena in use
    def self.read(arena: nil)
      known = Native.arenas(true)[:arenas].map { |body| body[:index] } if arena
      if known&.none?(arena)
        raise ArgumentError, "Memscope.size_classes: arena: given #{arena.inspect}, allowed: nil, #{known.join(', ')}"
      end

      capture(Native.size_classes(arena, arena.nil?))
    end

    # @return [Integer, nil] free regions of all slabs, in bytes; nil where there are no classes
    def slack_bytes = classes.any? ? sum { |size_class| size_class.slack_bytes || 0 } : nil

    # @param size_bytes [Integer]
    # @return [SizeClass] the one of exactly that size
    # @raise [KeyError] naming the sizes there are
    def [](size_bytes)
      find { |size_class| size_class.size_bytes == size_bytes } or
        raise KeyError.new("no size class of #{size_bytes.inspect} bytes; there are: #{map(&:size_bytes).join(', ')}",
                           receiver: self, key: size_bytes)
    end

    # @api private
    # @return [Boolean] whether anything could be read
    def known? = classes.any?
  end
end
