# frozen_string_literal: true

module Memscope
  module Report
    # Numbers as a line of bars, one column each. The height of a bar says how much its number exceeds the least one.
    module Sparkline
      # The bars, the lowest first, by whether they are Unicode.
      LEVELS = { true => "▁▂▃▄▅▆▇█", false => "_.-=+*#@" }.freeze

      module_function

      # @param values [Array<Numeric, nil>] nil becomes a blank
      # @param scale [Numeric] how far a full bar is above the least number
      # @param unicode [Boolean] false: plain ASCII
      # @return [String]
      def of(values, scale:, unicode:)
        levels = LEVELS.fetch(unicode)
        least = values.compact.min
        values.map { |value| value ? levels[(value - least) * (levels.size - 1) / scale] : " " }.join
      end
    end
  end
end
