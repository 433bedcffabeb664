# frozen_string_literal: true

require_relative "../reading"

begin
  require "did_you_mean/spell_checker"
rescue LoadError
  nil # a Ruby without its default gems
end

module Memscope
  class Lint < Reading
    # The grammars of the texts that allocators read.
    module Texts
      # As src/jemalloc.c (malloc_conf_next) reads the next one.
      PAIR = /\G([A-Za-z0-9_]*):([^,]*)(?:,|\z)/
      private_constant :PAIR

      module_function

      # "narenas:2,dirty_decay_ms:1000".
      #
      # @param text [String] as MALLOC_CONF has it
      # @return [Array(Array<Array(String, String)>, String)] name and value of each pair that jemalloc reads, and the
      #   rest, at which it stops; the rest is empty behind a comma, and nil without one
      def conf(text)
        pairs = text.scan(PAIR)
        read = pairs.sum { |pair| pair.join(":").length + 1 }
        [pairs, text[read..]]
      end

      # "glibc.malloc.arena_max=2:glibc.rtld.optional_static_tls=4096".
      #
      # @param text [String] as GLIBC_TUNABLES has it
      # @return [Array<Array(String, String)>] name and value of each; the value is nil without an equals sign
      def tunables(text) = text.split(":").reject(&:empty?).map { |part| [*part.split("=", 2), nil].first(2) }

      # @param name [String]
      # @param names [Array<String>]
      # @param edits [Integer] how many characters may differ: few, where other names are none of memscope's business
      # @return [String, nil] the one that it most resembles; nil where it resembles none
      def nearest(name, names, edits: name.length)
        names = names.to_h { |other| [other.downcase, other] }
        name = name.downcase
        return names[name] if names.key?(name) || !defined?(DidYouMean::SpellChecker)

        found, = DidYouMean::SpellChecker.new(dictionary: names.keys).correct(name)
        names[found] if found && DidYouMean::Levenshtein.distance(name, found) <= edits
      end
    end
    private_constant :Texts
  end
end
