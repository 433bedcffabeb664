# frozen_string_literal: true

require_relative "../reading"

module Memscope
  class Lint < Reading
    # A text of options as MALLOC_CONF has them, "narenas:2,dirty_decay_ms:1000": what jemalloc makes of it, and what
    # was meant where it is written otherwise.
    class ConfText
      # One option.
      Pair = Struct.new(:key, :value) do
        # @return [String]
        def to_s = "#{key}:#{value}"
      end

      # As src/jemalloc.c (malloc_conf_next) takes the next one.
      EXACT = /\G([A-Za-z0-9_]*):([^,]*)(?:,|\z)/
      LENIENT = /\A([^:=]*)[:=](.*)\z/
      private_constant :EXACT, :LENIENT

      # @return [Array<Pair>] as jemalloc reads them, in their order
      attr_reader :exact
      # @return [String, nil] the rest of the text, at which jemalloc stops reading
      attr_reader :malformed

      # @param text [String]
      def initialize(text)
        @text = text
        @exact = text.scan(EXACT).map { |key, value| Pair.new(key, value) }
        length = exact.sum { |pair| pair.to_s.length + 1 }
        @malformed = text[length..] if length < text.length
      end

      # @return [Array<Pair>] as they were meant: separated by anything that people take for a separator, without quotes
      def meant
        tokens = @text.delete("\"'").gsub(/\s*([:=,;])\s*/, '\1').split(/[,;\s]+/)
        tokens.filter_map { |token| Pair.new(*Regexp.last_match.captures) if LENIENT.match(token) }
      end

      # @return [Boolean] jemalloc complains of a comma at the end, and takes the rest
      def trailing_comma? = malformed.nil? && @text.end_with?(",")

      # @return [Array<String>] keys that are given more than once
      def repeated = exact.map(&:key).tally.select { |_key, count| count > 1 }.keys
    end
    private_constant :ConfText
  end
end
