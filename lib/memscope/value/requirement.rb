# frozen_string_literal: true

require_relative "reasons"

module Memscope
  # A gem that a part of memscope needs and memscope itself does not.
  # @api private
  module Requirement
    # @param surface [String] the part of memscope that needs the gem
    # @param feature [String] the file to require
    # @param version [String, nil] which versions of the gem are new enough: ">= 2.2"
    # @raise [LoadError] if the gem is missing; the message has the line for the Gemfile
    def self.load(surface, gem:, feature: gem, version: nil)
      require feature
    rescue LoadError => e
      raise unless e.path == feature

      arguments = [gem, *version].map(&:inspect).join(", ")
      raise LoadError, Reasons.sentence([:gem_missing, surface, gem, arguments])
    end
  end
end
