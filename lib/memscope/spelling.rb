# frozen_string_literal: true

begin
  require "did_you_mean/spell_checker"
rescue LoadError
  nil # a Ruby without its default gems
end

module Memscope
  # Finds the name that a misspelt name was meant to be.
  #
  # @api private
  module Spelling
    # @param name [String]
    # @param names [Array<String>]
    # @param edits [Integer] how many characters may differ: few, if `name` may well be unrelated to `names`
    # @return [String, nil] the one of `names` that `name` most resembles; nil if it resembles none
    def self.nearest(name, names, edits: name.length)
      names = names.to_h { |other| [other.downcase, other] }
      name = name.downcase
      return names[name] if names.key?(name) || !defined?(DidYouMean::SpellChecker)

      found, = DidYouMean::SpellChecker.new(dictionary: names.keys).correct(name)
      names[found] if found && DidYouMean::Levenshtein.distance(name, found) <= edits
    end
  end
  private_constant :Spelling
end
