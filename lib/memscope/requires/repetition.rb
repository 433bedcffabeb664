# frozen_string_literal: true

module Memscope
  class Requires < Reading
    # Merges several runs of one program into one reading, and adds what gems cost when they are required alone.
    #
    # @api private
    module Repetition
      # The cost of a gem that is not loaded.
      NOTHING = { files: 0, lazy_files: 0, objects_bytes: 0, malloc_bytes: 0, mapped_bytes: 0, inclusive_bytes: 0,
                  spread_bytes: nil, alone_bytes: nil, required_by: [] }.freeze
      private_constant :NOTHING

      class << self
        # @param readings [Array<Requires>] of the same program, in order
        # @return [Requires] the run of median cost, with the totals of all runs, and how far each gem's cost differs
        #   between the runs
        def of(readings)
          median = readings.sort_by { |reading| reading.bytes || reading.objects_bytes }[readings.size / 2]
          return median if readings.one?

          rebuilt(median, runs: readings.flat_map { |reading| reading.runs.map(&:to_h) },
                          gems: median.gems.map { |gem| { **gem.to_h, spread_bytes: spread(gem, readings) } })
        end

        # @param reading [Requires]
        # @param alone [Hash{String => Integer, nil}] bytes by gem; nil if it could not be required alone
        # @param reasons [Hash{Symbol => String}]
        # @return [Requires]
        def with_alone(reading, alone, reasons)
          gems = reading.gems.map { |gem| { **gem.to_h, alone_bytes: alone[gem.name] } }
          rebuilt(reading, gems: gems, reasons: { **reading.reasons, **reasons })
        end

        # @return [Requires] `reading`, with the gems that only `other` has, whose cost is 0
        def with_gems_of(reading, other)
          names = reading.gems.map(&:name)
          missing = other.gems.reject { |gem| names.include?(gem.name) }.map { |gem| { **gem.to_h, **NOTHING } }
          missing.empty? ? reading : rebuilt(reading, gems: [*reading.gems.map(&:to_h), *missing])
        end

        private

        def rebuilt(reading, changes) = Requires.from_h({ **reading.to_h, **changes })

        # A gem that a run did not load cost nothing in it.
        def spread(gem, readings)
          costs = readings.map { |reading| reading.gems.find { |one| one.name == gem.name }&.bytes || 0 }
          costs.max - costs.min
        end
      end
    end
  end
end
