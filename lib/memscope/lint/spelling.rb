# frozen_string_literal: true

require_relative "../reading"

begin
  require "did_you_mean/spell_checker"
rescue LoadError
  nil # a Ruby without its default gems
end

module Memscope
  class Lint < Reading
    # What a name was meant to be.
    module Spelling
      module_function

      # @param name [String]
      # @param names [Array<String>] those there are
      # @return [String, nil] the one that differs in capitals and underscores only, else the nearest; nil where none is
      #   near
      def meant(name, names)
        plain = plain(name)
        names.find { |other| plain(other) == plain } || nearest(name, names)
      end

      # For names among which there are others that nobody need know.
      #
      # @return [String, nil] the one that differs in capitals, underscores and two letters at most
      def slip(name, names)
        meant = meant(name, names)
        meant if meant && defined?(DidYouMean::Levenshtein) &&
                 DidYouMean::Levenshtein.distance(plain(name), plain(meant)) <= 2
      end

      def plain(name) = name.downcase.delete("_")

      def nearest(name, names)
        return unless defined?(DidYouMean::SpellChecker)

        DidYouMean::SpellChecker.new(dictionary: names).correct(name).first
      end
      private_class_method :plain, :nearest
    end
    private_constant :Spelling
  end
end
