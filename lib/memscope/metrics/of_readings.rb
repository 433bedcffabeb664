# frozen_string_literal: true

require_relative "definition"

module Memscope
  module Metrics
    # What the readings of a collection cost, and those of the workers' reports: name, key of Cost, help. They come
    # last: they tell of those that were taken.
    READING_COSTS = [
      ["reading_seconds", :wall_us, "How long the latest reading of each kind took"],
      ["reading_gvl_seconds", :gvl_us, "For how much of that it held the GVL"]
    ].freeze

    OF_READINGS = READING_COSTS.map do |name, key, help|
      Definition.new(name, help, source: :taken, labels: %i[reading], read: lambda { |taken|
        taken.transform_values { |reading| reading.cost.public_send(key).fdiv(1_000_000) }
      }, report: lambda { |worker|
        worker.costs&.transform_values { |cost| cost[key].fdiv(1_000_000) }
      })
    end.freeze
    private_constant :READING_COSTS, :OF_READINGS
  end
end
