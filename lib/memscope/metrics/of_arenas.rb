# frozen_string_literal: true

require_relative "definition"
require_relative "arena_levels"

module Memscope
  module Metrics
    OF_ARENAS = ArenaLevels::HELP.map do |name, help|
      Definition.new("arena_#{name}", help, source: :arenas, labels: %i[arena],
                                            read: ->(reading) { ArenaLevels.level(reading.arenas, name) },
                                            report: ->(worker) { worker.arenas&.[](name) })
    end.freeze
    private_constant :OF_ARENAS
  end
end
