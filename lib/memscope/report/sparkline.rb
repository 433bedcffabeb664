# frozen_string_literal: true

module Memscope
  module Report
    # Numbers as a line of bars, one column each. The height of a bar says how much more it is than the least number.
    module Sparkline
      # The bars, the lowest first, by whether they are Unicode.
      LEVELS = { true => "▁▂▃▄▅▆▇█", false => "_.-=+*#@" }.freeze

      module_function

      # @param values [Array<Numeric, nil>] a blank stands for nil
      # @param scale [Numeric] how much more than the least number a full bar stands for
      # @param unicode [Boolean] false: plain ASCII
      # @return [String]
      def of(values, scale:, unicode:)
        levels = LEVELS.fetch(unicode)
        least = values.compact.min
        values.map { |value| value ? levels[(value - least) * (levels.size - 1) / scale] : " " }.join
      end

      # @param values [Array<Numeric, nil>]
      # @param columns [Integer]
      # @return [Array<Numeric, nil>] the last known value of each of at most that many parts of the list
      def parts(values, columns)
        values.each_slice([values.size.fdiv(columns).ceil, 1].max).map { |part| part.compact.last }
      end
    end
  end
end
