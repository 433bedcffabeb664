# frozen_string_literal: true

require_relative "../reading"

module Memscope
  class Lint < Reading
    # What the text of a value was meant to be, as the allocator takes it. All methods give nil where it cannot be told.
    module ValueText
      YES = /\A(true|yes|on|1|t|y|enabled?)\z/i
      NO = /\A(false|no|off|0|f|n|disabled?)\z/i
      UNITS = { "" => 1, "k" => 1 << 10, "m" => 1 << 20, "g" => 1 << 30 }.freeze
      MILLISECONDS = { "ms" => 1, "s" => 1000, "m" => 60_000, "min" => 60_000 }.freeze
      private_constant :YES, :NO, :UNITS, :MILLISECONDS

      module_function

      # @return [String, nil] "true" or "false"
      def boolean(text)
        return "true" if text.match?(YES)

        "false" if text.match?(NO)
      end

      # @param range [Range] what is taken
      # @return [String, nil] a decimal number: of "64k" 65536, of "0x10" 16
      def number(text, range)
        within(range, plain(text) || scaled(text, /\A(\d+)([kmg]?)i?b?\z/i, UNITS))
      end

      # @return [String, nil] a decimal number: of "10s" 10000
      def milliseconds(text, range)
        within(range, plain(text) || scaled(text, /\A(\d+)(ms|s|m|min)\z/i, MILLISECONDS))
      end

      # @param words [Array<String>] what is taken
      # @return [String, nil] one of them
      def word(text, words) = words.include?(text) ? text : Spelling.meant(text, words)

      def plain(text) = text.match?(/\A[-+]?(\d|0x\h)/) ? Integer(text.delete("_"), exception: false) : nil

      def scaled(text, form, units)
        match = form.match(text.delete("_ "))
        Integer(match[1], 10) * units.fetch(match[2].downcase) if match
      end

      def within(range, number) = number && range.cover?(number) ? number.to_s : nil
      private_class_method :plain, :scaled, :within
    end
    private_constant :ValueText
  end
end
