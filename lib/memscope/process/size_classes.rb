# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # Allocations of one size. A small class has slabs of several pages, each divided into regions. Each allocation of a
  # large class has an extent of its own.
  class SizeClass < Record
    alias id size_bytes

    # @param body [Hash{Symbol => Object}] from the extension
    def self.capture(body)
      regions = body.key?(:extents) ? body.delete(:extents) : product(body[:slab_regions], body[:slabs])
      in_use = body.fetch(:regions_in_use, regions)
      free = regions && in_use && (regions - in_use)
      super({ **body, regions: regions, regions_in_use: in_use,
                      utilisation: (in_use.fdiv(regions) if free && regions.positive?),
                      in_use_bytes: product(in_use, body[:size_bytes]), slack_bytes: product(free, body[:size_bytes]) })
    end

    def self.product(left, right) = left && right && (left * right)
    private_class_method :product
  end

  # All size classes of the allocator, by size, used or not.
  #
  #   Memscope.size_classes.max_by(&:slack_bytes).size_bytes  # => 640
  class SizeClasses < Reading
    include Lookup

    include Collection

    # (see Memscope.size_classes)
    def self.read(arena: nil, native: Native)
      known = native.arenas(true)[:arenas].map { |body| body[:index] } unless arena.nil?
      Field.choice(:arena, arena, [nil, *known], call: "Memscope.size_classes")
      capture(native.size_classes(arena, arena.nil?))
    end

    # @return [Integer, nil] free regions of all slabs, in bytes, or nil if there are no classes
    def slack_bytes = classes.any? ? sum { |size_class| size_class.slack_bytes || 0 } : nil
  end
end
