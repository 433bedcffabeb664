# frozen_string_literal: true

module Memscope
  # A gem that a part of memscope needs, and that memscope itself does not depend on.
  #
  # @api private
  module Requirement
    # @param surface [String] needs the gem
    # @param gem [String]
    # @param feature [String] to require
    # @return [void]
    # @raise [LoadError] where the gem is not installed, saying what to add to the Gemfile
    def self.load(surface, gem:, feature: gem)
      require feature
    rescue LoadError => e
      raise unless e.path == feature

      raise LoadError, %(#{surface} needs the gem #{gem}, which is not there: add `gem "#{gem}"` to the Gemfile)
    end
  end
end
