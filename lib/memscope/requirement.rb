# frozen_string_literal: true

module Memscope
  # A gem that a part of memscope needs and memscope itself does not.
  #
  # @api private
  module Requirement
    # @param surface [String] the part that needs it
    # @param gem [String]
    # @param feature [String] the file to require
    # @param version [String, nil] those of the gem that will do: ">= 2.2"
    # @return [void]
    # @raise [LoadError] where the gem is missing, with the line for the Gemfile
    def self.load(surface, gem:, feature: gem, version: nil)
      require feature
    rescue LoadError => e
      raise unless e.path == feature

      line = "gem #{[gem, *version].map(&:inspect).join(', ')}"
      raise LoadError, "#{surface} needs the gem #{gem}, which is not there: add `#{line}` to the Gemfile"
    end
  end
end
