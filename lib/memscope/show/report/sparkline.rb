# frozen_string_literal: true

module Memscope
  module Report
    # Numbers as a line of bars, one column each. The height of a bar shows how much its number exceeds the smallest.
    module Sparkline
      # The bars, the lowest first, by whether they are Unicode.
      LEVELS = { true => "▁▂▃▄▅▆▇█", false => "_.-=+*#@" }.freeze

      module_function

      # nil becomes a blank. A full bar is `scale` above the smallest number.
      def of(values, scale:, unicode:)
        levels = LEVELS.fetch(unicode)
        least = values.compact.min
        values.map { |value| value ? levels[(value - least) * (levels.size - 1) / scale] : " " }.join
      end
    end
  end
end
